"""Decode machine code: bytes to instructions, with mnemonics, operands and text.

`decoder.py` finds the encoding of each word, one module a family of encodings reads its fields, `instruction.py` holds the result.
"""
