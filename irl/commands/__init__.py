"""The command line ``cirl``: one file a command, one for the options of all; nothing else in ``irl`` prints."""
