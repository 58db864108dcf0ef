"""The commands, one file each: parse, call one stage function, turn an error into a message."""
