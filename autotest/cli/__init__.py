"""The command line: the parser, and what each command does. Nothing else prints or exits."""
