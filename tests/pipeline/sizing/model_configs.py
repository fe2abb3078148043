"""Configurations of public models, reduced to the fields that the arithmetic reads."""

from __future__ import annotations

from typing import Any

LLAMA_70B: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "max_position_embeddings": 131072, "hidden_act": "silu",
}  # fmt: skip

MIXTRAL_8X22B: dict[str, Any] = {
    "model_type": "mixtral", "num_hidden_layers": 56, "num_attention_heads": 48, "num_key_value_heads": 8,
    "hidden_size": 6144, "intermediate_size": 16384, "vocab_size": 32768, "tie_word_embeddings": False,
    "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16", "sliding_window": None,
}  # fmt: skip

QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "vocab_size": 151936, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "sliding_window": None, "use_sliding_window": False, "max_window_layers": 48,
}  # fmt: skip

DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "vocab_size": 129280, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip

GPT_OSS_120B: dict[str, Any] = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 128,
    "num_experts_per_tok": 4, "vocab_size": 201088, "tie_word_embeddings": False, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip

GEMMA3_27B: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "sliding_window": 1024, "sliding_window_pattern": 6, "vocab_size": 262208,
        "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
    },
    "vision_config": {"hidden_size": 1152},
    "torch_dtype": "bfloat16",
}  # fmt: skip

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
    "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512,
    "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "vocab_size": 151936, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip

GPT2: dict[str, Any] = {
    "model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257,
    "tie_word_embeddings": True, "activation_function": "gelu_new", "torch_dtype": "float32",
}  # fmt: skip

FALCON_7B: dict[str, Any] = {
    "model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True,
    "hidden_size": 4544, "vocab_size": 65024, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
