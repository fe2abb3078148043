"""Stand-in inference engine: answers like vLLM, counts like vLLM, and knows the truth about itself.

It serves the OpenAI and Anthropic APIs over a real tokenizer, a block-level prefix cache and a timing model,
exposes vLLM's metric names and DCGM's power names, and logs every request it served as ground truth.
"""
