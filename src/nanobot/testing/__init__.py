"""Test aids that ship with the product."""
