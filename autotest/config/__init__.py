"""Configuration files to frozen data: ``autotest.conf`` to a Testbed, ``tests.conf`` to sections.

A file is validated whole: every problem is found, and reported together, before anything is touched.
"""
