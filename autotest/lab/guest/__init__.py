"""The lab's guest image: its recipe (the files beside the code), how it is built, and how its kernel is started.

A change of any recipe file makes a new image; a change of the code does so by a new ``RECIPE_VERSION``.
"""
