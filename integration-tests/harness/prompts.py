"""Twenty prompts of different kinds and lengths."""

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "Q: What is photosynthesis?\nA:",
    "日本語: 東京は日本の",
    "The three laws of motion were written by",
    "<|im_start|>user\nName three primes.<|im_end|>\n<|im_start|>assistant\n",
    "import numpy as np\n\nx = np.",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 1, 2, 3, 5, 8, 13,",
    "The chemical symbol of gold is Au. The chemical symbol of silver is",
    "She opened the door and saw",
    "Ingredients: two eggs, a cup of flour, a pinch of salt.\nMethod:",
    "¿Cuál es la capital de España? La capital de España es",
    "SELECT name, price FROM products WHERE",
    "A haiku about rain:\n",
    "The difference between a virus and a bacterium is that a virus " * 4,
    "In 1969, the first people walked on the Moon. " * 8 + "Their names were",
    "🙂 is an emoji that means",
]
