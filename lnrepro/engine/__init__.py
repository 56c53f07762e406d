"""Running of experiments: training, evaluation, checkpoints, devices, records.

`lnrepro.main` is the command line on top of it. Library users of the norms and cells
need nothing of it.
"""
