"""Looking at machines that may become a testbed, and writing down what was found as configuration files.

Nothing is changed on the machines, and nothing is sent over their NICs: what can be told is told by what their kernels know.
"""
