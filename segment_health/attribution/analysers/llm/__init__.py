"""The analyser that asks a language model, and believes it only what it can show."""
