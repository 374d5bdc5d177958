"""Texts out of updates: the words of a member's batch from what an observer saw of its gradient.

============== ===============================================================================================
`victim`       what is attacked: a small transformer of our own, adapters (LoRA) on it, or an encoder such as MiniLM
`row_space`    the space that a layer's inputs span, from some entries of its gradient (matrix completion)
`span`         which token at which place lies in that space (DAGER's check)
`search`       tokens whose gradient is nearest to what was seen (a search in the manner of LAMP)
`relu_layer`   the inputs of a layer with ReLU, whole batches of them (SPEAR)
`run`          a map of success over aggregators, tokens, blocks, compression and noise
============== ===============================================================================================
"""
