from __future__ import annotations

from typing import Any

import pytest

from pipeline.sizing import kv
from pipeline.sizing.geometry import parse_config
from pipeline.sizing.layers import GeometryError
from pipeline.sizing.units import GB, GIB
from pipeline.sizing.weights import Parallelism, count_parameters, index_gb, place_weights, precision_of


@pytest.mark.parametrize(
    ("name", "total_b", "active_b"),
    [
        ("LLAMA_70B", 70.55, 69.5),
        ("MIXTRAL_8X22B", 140.6, 39.0),
        ("DEEPSEEK_V3", 671.0, 36.6),
        ("GPT_OSS_120B", 116.8, 5.1),
        ("QWEN3_30B_A3B", 30.5, 3.04),
        ("GEMMA3_27B", 27.0, 27.0),
        ("QWEN3_NEXT", 79.6, 3.46),
    ],
)
def test_parameters_match_what_the_model_cards_state(
    models: Any, name: str, total_b: float, active_b: float
) -> None:
    counted = count_parameters(parse_config(getattr(models, name)))
    assert counted.total / 1e9 == pytest.approx(total_b, rel=0.005)
    assert counted.active / 1e9 == pytest.approx(active_b, rel=0.01)


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("LLAMA_70B", 327_680),
        ("MIXTRAL_8X22B", 229_376),
        ("DEEPSEEK_V3", (512 + 64) * 2 * 61),
        ("FALCON_7B", 2 * 32 * 64 * 2),
        ("GPT2", 2 * 12 * 12 * 64 * 2),
    ],
)
def test_cache_bytes_per_token_follow_the_attention_of_the_model(
    models: Any, name: str, per_token: int
) -> None:
    assert kv.sequence_cost(parse_config(getattr(models, name)), 2).per_token == per_token


def test_head_dimension_is_derived_only_where_it_is_absent(models: Any) -> None:
    derived = parse_config(models.LLAMA_70B)
    assert derived.head_dim == 128
    assert any("derived" in note for note in derived.notes)
    assert parse_config(models.QWEN3_30B_A3B).head_dim == 128  # hidden / heads would be 64


def test_windowed_layers_stop_growing_at_their_window(models: Any) -> None:
    geometry = parse_config(models.GEMMA3_27B)
    assert (geometry.count("full"), geometry.count("window")) == (10, 52)
    cost = kv.sequence_cost(geometry, 2)
    per_layer = 2 * 16 * 128 * 2
    assert cost.bytes_at(512) == 62 * per_layer * 512
    assert cost.bytes_at(32_000) == 10 * per_layer * 32_000 + 52 * per_layer * 1024


def test_window_that_is_switched_off_counts_as_full_attention(models: Any) -> None:
    config = {**models.QWEN3_30B_A3B, "sliding_window": 4096, "use_sliding_window": False}
    assert parse_config(config).count("full") == 48
    on = {**models.QWEN3_30B_A3B, "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}
    assert parse_config(on).count("window") == 20


def test_recurrent_layers_keep_a_constant_state(models: Any) -> None:
    geometry = parse_config(models.QWEN3_NEXT)
    assert (geometry.count("full"), geometry.count("recurrent")) == (12, 36)
    cost = kv.sequence_cost(geometry, 2)
    state = 36 * (32 * 128 * 128 + (2 * 16 * 128 + 32 * 128) * 3) * 2
    assert cost.constant == state
    assert cost.bytes_at(1600) - cost.bytes_at(0) == 12 * 2 * 2 * 256 * 2 * 1600


def test_pattern_of_letters_names_the_layers(models: Any) -> None:
    config = {
        **models.LLAMA_70B, "num_hidden_layers": 6, "hybrid_override_pattern": "M-M*M-", "mamba_d_state": 128,
        "mamba_d_conv": 4, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 8,
    }  # fmt: skip
    geometry = parse_config(config)
    assert [geometry.count(k) for k in ("full", "recurrent", "none")] == [1, 3, 2]
    with pytest.raises(GeometryError, match="hybrid_override_pattern"):
        parse_config({**config, "hybrid_override_pattern": "M-M*"})


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"])
def test_missing_field_is_named(models: Any, field: str) -> None:
    config = {k: v for k, v in models.MIXTRAL_8X22B.items() if k != field}
    with pytest.raises(GeometryError, match=field) as caught:
        parse_config(config)
    assert caught.value.field == field


def test_unknown_architecture_without_kv_heads_is_refused_and_a_known_one_is_not(models: Any) -> None:
    config = {k: v for k, v in models.MIXTRAL_8X22B.items() if k != "num_key_value_heads"}
    with pytest.raises(GeometryError, match="num_key_value_heads"):
        parse_config({**config, "model_type": "brand_new"})
    old = {k: v for k, v in models.LLAMA_70B.items() if k != "num_key_value_heads"}
    assert parse_config(old).kv_heads == 64


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_hidden_layers": "80"}, "num_hidden_layers"),
        ({"num_attention_heads": 60}, "head_dim"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 80}, "sliding_window"),
        ({"layer_types": ["quantum"] * 80}, "layer_types"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"full_attention_interval": 4}, "mamba_d_state"),
    ],
)
def test_contradictory_field_is_named(models: Any, change: dict[str, Any], field: str) -> None:
    with pytest.raises(GeometryError, match=field):
        parse_config({**models.LLAMA_70B, **change})


def test_kv_heads_are_replicated_once_there_are_more_ranks_than_heads(models: Any) -> None:
    geometry = parse_config(models.LLAMA_70B)
    whole = kv.sequence_cost(geometry, 2).per_token
    assert kv.sequence_cost(geometry, 2, Parallelism(8)).per_token == whole / 8
    assert kv.sequence_cost(geometry, 2, Parallelism(16)).per_token == whole / 8
    assert kv.sequence_cost(geometry, 2, Parallelism(4, pipeline=2)).per_token == whole / 8


def test_latent_cache_is_the_same_on_every_rank(models: Any) -> None:
    geometry = parse_config(models.DEEPSEEK_V3)
    alone, eight = (kv.sequence_cost(geometry, 1, Parallelism(n)).per_token for n in (1, 8))
    assert alone == eight == 576 * 61


def test_sparse_indexer_adds_its_own_cache(models: Any) -> None:
    plain = kv.sequence_cost(parse_config(models.DEEPSEEK_V3), 1).per_token
    sparse = kv.sequence_cost(parse_config({**models.DEEPSEEK_V3, "index_head_dim": 128}), 1).per_token
    assert sparse - plain == 61 * (128 + 4)


def test_shared_cache_layers_are_not_counted_twice(models: Any) -> None:
    base = {**models.LLAMA_70B, "num_kv_shared_layers": 20}
    assert kv.sequence_cost(parse_config(base), 2).per_token == 327_680 * 60 / 80


def test_weights_per_gpu_divide_what_can_be_divided(models: Any) -> None:
    geometry = parse_config(models.LLAMA_70B)
    assert place_weights(geometry, Parallelism()).total_gb == pytest.approx(141.1, rel=0.001)
    assert place_weights(geometry, Parallelism(4)).per_gpu_gb == pytest.approx(35.3, rel=0.002)
    staged = place_weights(geometry, Parallelism(2, pipeline=2))
    assert staged.per_gpu_gb == pytest.approx(35.3, rel=0.002)


def test_quantised_checkpoints_match_their_download_size(models: Any) -> None:
    gpt_oss = place_weights(parse_config(models.GPT_OSS_120B), Parallelism())
    assert gpt_oss.total_gb == pytest.approx(65.2, rel=0.01)
    assert gpt_oss.label == "mxfp4"
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    llama = place_weights(parse_config({**models.LLAMA_70B, "quantization_config": awq}), Parallelism())
    assert llama.total_gb == pytest.approx(39.8, rel=0.02)
    assert place_weights(parse_config(models.DEEPSEEK_V3), Parallelism()).total_gb == pytest.approx(
        673, rel=0.01
    )


@pytest.mark.parametrize(
    ("quantisation", "bytes_each"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            1.0,
        ),
    ],
)
def test_precision_is_read_from_the_quantisation_block(
    models: Any, quantisation: dict[str, Any], bytes_each: float
) -> None:
    geometry = parse_config({**models.LLAMA_70B, "quantization_config": quantisation})
    assert precision_of(geometry).linear_bytes == pytest.approx(bytes_each)


def test_unknown_quantisation_is_refused(models: Any) -> None:
    geometry = parse_config({**models.LLAMA_70B, "quantization_config": {"quant_method": "magic"}})
    with pytest.raises(ValueError, match="quant_method"):
        precision_of(geometry)
    empty = parse_config({**models.LLAMA_70B, "quantization_config": {"quant_method": "compressed-tensors"}})
    with pytest.raises(ValueError, match="num_bits"):
        precision_of(empty)


def test_expert_parallelism_rounds_experts_up_on_the_busiest_rank(models: Any) -> None:
    geometry = parse_config(models.MIXTRAL_8X22B)
    sliced = place_weights(geometry, Parallelism(4))
    spread = place_weights(geometry, Parallelism(4, expert=4))
    assert spread.per_gpu_gb == pytest.approx(sliced.per_gpu_gb)
    uneven = place_weights(geometry, Parallelism(1, expert=3))
    experts = count_parameters(geometry).experts * 2 / GB
    assert uneven.per_gpu_gb == pytest.approx(sliced.total_gb - experts + experts * 3 / 8)
    with pytest.raises(ValueError, match="multiple"):
        Parallelism(4, expert=6)


def test_index_of_the_checkpoint_gives_the_exact_size() -> None:
    assert index_gb({"metadata": {"total_size": 141_107_412_992}}) == pytest.approx(141.107, rel=1e-4)
    with pytest.raises(ValueError, match="total_size"):
        index_gb({"metadata": {}})


def test_fit_names_the_setting_and_refuses_a_sequence_that_does_not_fit(models: Any) -> None:
    cost = kv.sequence_cost(parse_config(models.LLAMA_70B), 1, Parallelism(4))
    found = kv.fit(38.0, cost, p50=68_000, p95=131_072, longest=131_072)
    assert found.at_max == int(38e9 // (327_680 / 2 / 4 * 131_072))
    assert found.at_p50 > found.at_p95 == found.max_num_seqs
    assert found.gib_at_max == pytest.approx(327_680 / 8 * 131_072 / GIB)
    with pytest.raises(ValueError, match="one sequence of 131072 tokens"):
        kv.fit(1.0, cost, p50=1, p95=1, longest=131_072)


def test_blocks_are_whole_and_decimal_never_meets_binary(models: Any) -> None:
    cost = kv.sequence_cost(parse_config(models.LLAMA_70B), 2)
    assert cost.bytes_at(1) == cost.bytes_at(16) == 327_680 * 16
    assert cost.gib_at(16_384) == pytest.approx(5.0)
    with pytest.raises(ValueError, match="negative"):
        cost.bytes_at(-1)


def test_budget_says_by_how_much_the_weights_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"72\.0 GB usable, 141\.0 GB weights"):
        kv.budget(80, 141, gpu_memory_utilization=0.9)
