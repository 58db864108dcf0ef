"""Where images and class names come from; one reader per layout. Pillow and NumPy only."""
