"""Attacks that recover the words of a member's batch from what an observer saw of its gradient.

============== ===============================================================================================
`victim`       the attacked model: a small transformer of our own, adapters (LoRA) on it, or an encoder such as MiniLM
`row_space`    the space that a layer's inputs span, from some entries of its gradient (matrix completion)
`span`         which token at which place lies in that space (DAGER's check)
`search`       tokens whose gradient is nearest to what was seen (a search in the manner of LAMP)
`pursuit`      tokens one by one, where too few entries were seen for that space
`relu_layer`   whole batches of inputs to a layer with ReLU (SPEAR)
`run`          a map of success over aggregators, tokens, blocks, compression and noise
============== ===============================================================================================
"""
