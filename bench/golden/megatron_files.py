"""Golden data of stages/checkpoint/torch: what Megatron's own library writes, and what it makes of what lfactor wrote.

  python bench/golden/megatron_files.py [KIND]       writes to stages/checkpoint/torch/testdata, for dense (qwen3), experts (qwen3_moe) and
  latent (deepseek_v3: a dense layer and one of experts that balance by a bias, with a shared one):
    megatron-KIND/           torch_dist of a GPTModel, the dense one by 4 processes with tp 2 and pp 2
    megatron-KIND-ranks/     the older form, with tp 2 (and pp 2)
    megatron-KIND-hf/        config.json, and the same weights as transformers has them, taken apart here
  python bench/golden/megatron_files.py read KIND DIR [TP PP]   loads DIR, a release that lfactor wrote, into a GPTModel, and compares its
                                               logits with those of transformers' model of megatron-KIND-hf

Run from the repository's root with torch, safetensors, transformers and megatron-core 0.16 installed (pip install --no-deps
megatron-core); no GPU is needed: what asks for one is put aside below.
"""

import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file

OUT = pathlib.Path("stages/checkpoint/torch/testdata")
LAYERS, HIDDEN, HEADS, GROUPS, DIM, MLP, EXPERTS, EXPERT, VOCAB = 2, 16, 4, 2, 8, 24, 3, 12, 20
QRANK, KVRANK, NOPE, ROPE, VDIM = 12, 8, 6, 4, 5  # of latent attention


def build(kind, tp, pp, vocab, vp=None, chunk=None, tied=False):
    import megatron.core.tensor_parallel.random as rng
    import megatron.core.transformer.moe.moe_utils as moe_utils
    from megatron.core import parallel_state as ps
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    rng.CudaRNGStatesTracker.fork = lambda self, *a, **k: contextlib.nullcontext()
    moe_utils.te_general_gemm = None
    torch.cuda.current_device, torch.cuda.synchronize = (lambda: "cpu"), (lambda *a: None)
    if not ps.model_parallel_is_initialized():
        ps.initialize_model_parallel(tp, pp, virtual_pipeline_model_parallel_size=vp)
    if kind == "latent":
        return latent(tp, pp, vocab)
    moe = kind == "experts"
    experts = dict(num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=EXPERT) if moe else {}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, kv_channels=DIM, ffn_hidden_size=MLP,
        use_cpu_initialization=True, normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu,
        add_bias_linear=False, qk_layernorm=True, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=vp, pipeline_dtype=torch.float32, gradient_accumulation_fusion=False, hidden_dropout=0.0, attention_dropout=0.0,
        attention_softmax_in_fp32=True, masked_softmax_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False,
        apply_rope_fusion=False, persist_layer_norm=False, **experts)
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS if moe else None, moe_grouped_gemm=False, qk_layernorm=True,
                                    normalization="RMSNorm")
    stage = dict(ignore_virtual=vp is None, vp_stage=chunk)
    return GPTModel(config, spec, vocab_size=vocab, max_sequence_length=64, pre_process=ps.is_pipeline_first_stage(**stage),
                    post_process=ps.is_pipeline_last_stage(**stage), position_embedding_type="rope", rotary_base=1000000,
                    share_embeddings_and_output_weights=tied, vp_stage=chunk)


def latent(tp, pp, vocab):
    from megatron.core import parallel_state as ps
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.transformer_config import MLATransformerConfig
    import megatron.core.transformer.multi_latent_attention as mla
    for name in dir(mla):
        if name.startswith("TE") and not isinstance(getattr(mla, name), type):  # Transformer Engine's classes, which it compares with
            setattr(mla, name, type(name, (), {}))
    plain = DotProductAttention.__init__

    def made(self, *args, k_channels=None, v_channels=None, **kwargs):  # its own attention knows one width of a head
        plain(self, *args, **kwargs)
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition
    DotProductAttention.__init__ = made
    config = MLATransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=MLP, use_cpu_initialization=True,
        normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        qk_layernorm=True, q_lora_rank=QRANK, kv_lora_rank=KVRANK, qk_head_dim=NOPE, qk_pos_emb_head_dim=ROPE, v_head_dim=VDIM,
        layernorm_epsilon=1e-6, rope_type="rope", rotary_base=10000.0, num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=EXPERT,
        moe_layer_freq=[0, 1], moe_shared_expert_intermediate_size=EXPERT, moe_router_score_function="sigmoid",
        moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.5, moe_router_pre_softmax=False,
        tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, pipeline_dtype=torch.float32, gradient_accumulation_fusion=False,
        hidden_dropout=0.0, attention_dropout=0.0, attention_softmax_in_fp32=True, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False, persist_layer_norm=False)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    return GPTModel(config, spec, vocab_size=vocab, max_sequence_length=64, pre_process=ps.is_pipeline_first_stage(),
                    post_process=ps.is_pipeline_last_stage(), position_embedding_type="rope", rotary_base=10000)


def begin(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=world)


def load(model, path):
    from megatron.core import dist_checkpointing as dc
    state = dc.load(model.sharded_state_dict(prefix=""), path)
    for key in ("checkpoint_version", "iteration"):
        state.pop(key, None)
    model.load_state_dict(state, strict=True)


def first(rank, kind, path):
    """Makes a model of one rank, saves it, and takes its weights apart."""
    from megatron.core import dist_checkpointing as dc
    begin(0, 1, 29911)
    model = build(kind, 1, 1, VOCAB)
    gen = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p.copy_(torch.randn(p.shape, generator=gen) * 0.2 + (1 if "norm" in name else 0))
        for name, b in model.named_buffers():
            if name.endswith("expert_bias"):
                b.copy_(torch.randn(b.shape, generator=gen) * 0.1)
    os.makedirs(path)
    dc.save(model.sharded_state_dict(prefix=""), path)
    apart(kind, {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)})
    dist.destroy_process_group()


def split(sd, of, name, to):
    gate, up = sd[of + name + ".linear_fc1.weight"].chunk(2)
    return {to + ".gate_proj.weight": gate, to + ".up_proj.weight": up, to + ".down_proj.weight": sd[of + name + ".linear_fc2.weight"]}


def apart_latent(sd):
    out = {"model.embed_tokens.weight": sd["embedding.word_embeddings.weight"], "lm_head.weight": sd["output_layer.weight"],
           "model.norm.weight": sd["decoder.final_layernorm.weight"]}
    for n in range(LAYERS):
        of, to = f"decoder.layers.{n}.", f"model.layers.{n}."
        for a, b in {"self_attention.linear_q_down_proj": "self_attn.q_a_proj", "self_attention.linear_q_up_proj": "self_attn.q_b_proj",
                     "self_attention.linear_kv_down_proj": "self_attn.kv_a_proj_with_mqa",
                     "self_attention.linear_kv_up_proj": "self_attn.kv_b_proj", "self_attention.q_layernorm": "self_attn.q_a_layernorm",
                     "self_attention.kv_layernorm": "self_attn.kv_a_layernorm", "self_attention.linear_proj": "self_attn.o_proj",
                     "input_layernorm": "input_layernorm", "pre_mlp_layernorm": "post_attention_layernorm"}.items():
            out[to + b + ".weight"] = sd[of + a + ".weight"]
        if n == 0:
            out.update(split(sd, of, "mlp", to + "mlp"))
            continue
        out[to + "mlp.gate.weight"] = sd[of + "mlp.router.weight"]
        out[to + "mlp.gate.e_score_correction_bias"] = sd[of + "mlp.router.expert_bias"]
        out.update(split(sd, of, "mlp.shared_experts", to + "mlp.shared_experts"))
        for e in range(EXPERTS):
            out.update(split(sd, of, f"mlp.experts.local_experts.{e}", to + f"mlp.experts.{e}"))
    write("latent", out, {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": MLP, "moe_intermediate_size": EXPERT, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "n_shared_experts": 1, "n_routed_experts": EXPERTS, "routed_scaling_factor": 2.5,
        "kv_lora_rank": KVRANK, "q_lora_rank": QRANK, "qk_rope_head_dim": ROPE, "v_head_dim": VDIM, "qk_nope_head_dim": NOPE,
        "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "norm_topk_prob": True,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "rope_interleave": True, "tie_word_embeddings": False,
        "hidden_act": "silu", "attention_bias": False})


def write(kind, out, c):
    dir = OUT / f"megatron-{kind}-hf"
    dir.mkdir(exist_ok=True)
    save_file({k: v.clone().contiguous() for k, v in out.items()}, dir / "model.safetensors", metadata={"format": "pt"})
    (dir / "config.json").write_text(json.dumps(c, indent=1) + "\n")


def apart(kind, sd):
    if kind == "latent":
        return apart_latent(sd)
    out = {"model.embed_tokens.weight": sd["embedding.word_embeddings.weight"], "lm_head.weight": sd["output_layer.weight"],
           "model.norm.weight": sd["decoder.final_layernorm.weight"]}
    for n in range(LAYERS):
        of, to = f"decoder.layers.{n}.", f"model.layers.{n}."
        qkv = sd[of + "self_attention.linear_qkv.weight"].view(GROUPS, HEADS // GROUPS + 2, DIM, HIDDEN)
        q, k, v = qkv.split([HEADS // GROUPS, 1, 1], dim=1)
        for name, x in {"q": q, "k": k, "v": v}.items():
            out[to + f"self_attn.{name}_proj.weight"] = x.reshape(-1, HIDDEN)
        out[to + "self_attn.o_proj.weight"] = sd[of + "self_attention.linear_proj.weight"]
        out[to + "self_attn.q_norm.weight"] = sd[of + "self_attention.q_layernorm.weight"]
        out[to + "self_attn.k_norm.weight"] = sd[of + "self_attention.k_layernorm.weight"]
        out[to + "input_layernorm.weight"] = sd[of + "input_layernorm.weight"]
        out[to + "post_attention_layernorm.weight"] = sd[of + "pre_mlp_layernorm.weight"]
        if kind == "dense":
            gate, up = sd[of + "mlp.linear_fc1.weight"].chunk(2)
            out.update({to + "mlp.gate_proj.weight": gate, to + "mlp.up_proj.weight": up,
                        to + "mlp.down_proj.weight": sd[of + "mlp.linear_fc2.weight"]})
            continue
        out[to + "mlp.gate.weight"] = sd[of + "mlp.router.weight"]
        for e in range(EXPERTS):
            gate, up = sd[of + f"mlp.experts.local_experts.{e}.linear_fc1.weight"].chunk(2)
            out.update({to + f"mlp.experts.{e}.gate_proj.weight": gate, to + f"mlp.experts.{e}.up_proj.weight": up,
                        to + f"mlp.experts.{e}.down_proj.weight": sd[of + f"mlp.experts.local_experts.{e}.linear_fc2.weight"]})
    c = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
         "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
         "head_dim": DIM, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": False,
         "hidden_act": "silu"}
    if kind == "experts":
        c.update({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": EXPERTS,
                  "num_experts_per_tok": 2, "moe_intermediate_size": EXPERT, "decoder_sparse_step": 1, "mlp_only_layers": [],
                  "norm_topk_prob": True})
    write(kind, out, c)


def again(rank, kind, source, path, tp, pp, port):
    """Loads a model into tp·pp ranks and saves it again."""
    from megatron.core import dist_checkpointing as dc
    begin(rank, tp * pp, port)
    model = build(kind, tp, pp, VOCAB)
    load(model, source)
    if path.endswith("-ranks"):  # the older form
        from megatron.core import parallel_state as ps
        name = f"mp_rank_{ps.get_tensor_model_parallel_rank():02d}" + (f"_{ps.get_pipeline_model_parallel_rank():03d}" if pp > 1 else "")
        os.makedirs(f"{path}/{name}")
        import argparse
        state = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}
        torch.save({"args": argparse.Namespace(num_layers=LAYERS), "checkpoint_version": 3.0, "iteration": 7, "model": state},
                   f"{path}/{name}/model_optim_rng.pt")
    else:
        dc.save(model.sharded_state_dict(prefix=""), path)
    dist.destroy_process_group()


def read(rank, kind, path, tp, pp, port):
    begin(rank, tp * pp, port)
    model = build(kind, tp, pp, 128 * -(-VOCAB // 128))
    load(model, path)
    print(f"rank {rank} has loaded {path}")
    if tp * pp == 1:
        from transformers import AutoModelForCausalLM
        ids = torch.arange(VOCAB)[None]
        mask = torch.triu(torch.ones(1, 1, VOCAB, VOCAB), 1).bool()
        ref = AutoModelForCausalLM.from_pretrained(OUT / f"megatron-{kind}-hf", dtype=torch.float32, attn_implementation="eager")
        with torch.no_grad():
            a, b = model.eval()(ids, torch.arange(VOCAB)[None], mask)[..., :VOCAB], ref.eval()(ids).logits
        print(f"logits differ by {(a - b).abs().max():.3g} of {b.abs().max():.3g}")
        assert (a - b).abs().max() < 1e-5
    dist.destroy_process_group()


def main():
    if len(sys.argv) > 2:
        kind, path, tp, pp = sys.argv[2], sys.argv[3], *map(int, sys.argv[4:6] or (1, 1))
        mp.spawn(read, (kind, path, tp, pp, 29931), nprocs=tp * pp)
        return
    kinds = sys.argv[1:]
    for i, (kind, tp, pp) in enumerate([("dense", 2, 2), ("experts", 1, 1), ("latent", 1, 1)]):
        if kinds and kind not in kinds:
            continue
        whole = tempfile.mkdtemp() + "/whole"
        mp.spawn(first, (kind, whole), nprocs=1)
        out = OUT / f"megatron-{kind}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        mp.spawn(again, (kind, whole, str(out), tp, pp, 29920 + i), nprocs=tp * pp)
        ranks = str(out) + "-ranks"
        shutil.rmtree(ranks, ignore_errors=True)
        mp.spawn(again, (kind, whole, ranks, 2, pp, 29940 + i), nprocs=2 * pp)


if __name__ == "__main__":
    main()
