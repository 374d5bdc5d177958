collect_ignore = ["flower_apps"]  # projects that tests run, not modules with doctests
