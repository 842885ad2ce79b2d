"""Golden data of the decoders whose layers are not Llama's: stages/family/testdata/<case>/ as family_golden.py writes it,
with tiny models of transformers. Windows, soft caps and scales are chosen so small that each changes the loss.
Further cases are files of bench/golden/families: a new family comes with one, <case>.json, and no line here is edited.

Run from the repository's root: python bench/golden/family_layers.py [case ...]. The same versions of torch and
transformers give the same bytes.
"""

import json
import pathlib
import sys
import zlib

import torch
import transformers
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

import family_golden as base

SHAPE = {k: v for k, v in base.SHAPE.items() if k != "rope_theta"}
# of files with "small"; what a case has of its own goes first
SMALL = dict(vocab_size=64, hidden_size=16, intermediate_size=24, head_dim=4)
WINDOW = 5


def rope(theta=10000.0, **more):
    return dict(rope_type="default", rope_theta=theta, **more)


# of latent attention; no two widths are equal
LATENT = dict(num_key_value_heads=4, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=12, v_head_dim=14, moe_intermediate_size=16, rms_norm_eps=1e-5, drop=("head_dim",))

# of layers with the gated delta rule; no two widths are equal
DELTA = dict(rms_norm_eps=1e-6, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=20, linear_value_head_dim=12,
             head_dim=16, rope_parameters=rope(partial_rotary_factor=0.25))

# name: (config class, model class, what differs from SHAPE).
CASES = {
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", dict(rms_norm_eps=1e-6, rope_parameters=rope(), num_hidden_layers=3, sliding_window=WINDOW, tie_word_embeddings=True,
               query_pre_attn_scalar=20, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "qwen2-window": ("Qwen2Config", "Qwen2ForCausalLM", dict(rope_parameters=rope(), num_hidden_layers=3, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1,
                     drop=("head_dim",))),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(rope_parameters=rope(), sliding_window=WINDOW)),
    "ministral": ("MinistralConfig", "MinistralForCausalLM", dict(rope_parameters=rope(), num_hidden_layers=3, sliding_window=WINDOW,
                  layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", dict(rms_norm_eps=1e-6, num_hidden_layers=3, sliding_window=WINDOW, tie_word_embeddings=True, query_pre_attn_scalar=20,
               layer_types=["sliding_attention", "full_attention", "sliding_attention"],
               rope_parameters=dict(sliding_attention=rope(), full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0)))),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", dict(rope_parameters=rope(), sliding_window=WINDOW, drop=("head_dim",))),
    "phi4": ("Phi3Config", "Phi3ForCausalLM", dict(rope_parameters=rope(250000.0, partial_rotary_factor=0.5), sliding_window=None, tie_word_embeddings=True, drop=("head_dim",))),
    "phi4-long": ("Phi3Config", "Phi3ForCausalLM", dict(sliding_window=None, original_max_position_embeddings=16, rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                  partial_rotary_factor=0.5, long_factor=[1.0, 1.7, 4.0], short_factor=[1.0, 1.1, 1.3]), drop=("head_dim",))),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", dict(rope_parameters=rope(500000.0), drop=("head_dim",))),
    "granite": ("GraniteConfig", "GraniteForCausalLM", dict(rope_parameters=rope(), tie_word_embeddings=True, embedding_multiplier=6.0, attention_multiplier=0.2, residual_multiplier=0.4,
                logits_scaling=3.0, drop=("head_dim",))),
    "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", dict(rope_parameters=rope(), sliding_window=WINDOW, norm_epsilon=1e-5, tie_word_embeddings=True, drop=("head_dim", "rms_norm_eps"))),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", dict(rope_parameters=rope(2000000.0), num_hidden_layers=3, no_rope_layers=[1, 0, 1], tie_word_embeddings=True, drop=("head_dim",))),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(n_embd=48, n_layer=2, n_head=4, n_inner=80, n_positions=64, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True,
             drop=("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps"))),
    "glm": ("GlmConfig", "GlmForCausalLM", dict(rope_parameters=rope(partial_rotary_factor=0.5), eos_token_id=[2, 3])),
    "qwen3-moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(rms_norm_eps=1e-6, rope_parameters=rope(), num_hidden_layers=3, num_experts=6, num_experts_per_tok=2,
                  moe_intermediate_size=20, mlp_only_layers=[1], norm_topk_prob=True)),
    "qwen3-moe-aux": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(rms_norm_eps=1e-6, rope_parameters=rope(), num_experts=5, num_experts_per_tok=3, moe_intermediate_size=12,
                      norm_topk_prob=False, output_router_logits=True, router_aux_loss_coef=0.5)),
    "qwen2-moe": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM", dict(rms_norm_eps=1e-6, rope_parameters=rope(), num_hidden_layers=3, num_experts=7, num_experts_per_tok=1,
                  moe_intermediate_size=16, shared_expert_intermediate_size=28, decoder_sparse_step=2, norm_topk_prob=False, drop=("head_dim",))),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", dict(rope_parameters=rope(), num_local_experts=4, num_experts_per_tok=2, sliding_window=WINDOW,
                output_router_logits=True, router_aux_loss_coef=0.25)),
    "glm4-moe": ("Glm4MoeConfig", "Glm4MoeForCausalLM", dict(rope_parameters=rope(partial_rotary_factor=0.5), num_hidden_layers=3, n_routed_experts=12, num_experts_per_tok=3,
                 moe_intermediate_size=16, n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True)),
    "minimax-m2": ("MiniMaxM2Config", "MiniMaxM2ForCausalLM", dict(rope_parameters=rope(partial_rotary_factor=0.5), rotary_dim=6, num_local_experts=6, num_experts_per_tok=2)),
    "ernie4.5-moe": ("Ernie4_5_MoeConfig", "Ernie4_5_MoeForCausalLM", dict(rope_parameters=rope(), num_hidden_layers=3, moe_num_experts=5, moe_k=3, moe_intermediate_size=16,
                     moe_num_shared_experts=2, moe_layer_start_index=1, tie_word_embeddings=True)),
    "deepseek-v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM", LATENT | dict(rope_parameters=rope(), num_hidden_layers=3, q_lora_rank=20, n_routed_experts=12, num_experts_per_tok=3,
                    n_shared_experts=2, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=3.0)),
    "deepseek-v2-lite": ("DeepseekV2Config", "DeepseekV2ForCausalLM", LATENT | dict(q_lora_rank=None, n_routed_experts=7, num_experts_per_tok=2, n_shared_experts=1,
                         rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek-v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", LATENT | dict(num_hidden_layers=3, q_lora_rank=20, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
                    first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, num_mtp_layers=0,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.6, beta_fast=4.0, beta_slow=1.0))),
    "deepseek-v3.2": ("DeepseekV32Config", "DeepseekV32ForCausalLM", LATENT | dict(num_hidden_layers=3, q_lora_rank=20, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
                      first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, index_topk=6, index_n_heads=12, index_head_dim=16,
                      rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.6, beta_fast=4.0, beta_slow=1.0))),
    "glm5": ("GlmMoeDsaConfig", "GlmMoeDsaForCausalLM", LATENT | dict(num_hidden_layers=4, q_lora_rank=20, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
             first_k_dense_replace=2, n_group=1, topk_group=1, routed_scaling_factor=1.5, index_topk=5, index_n_heads=13, index_head_dim=14,
             indexer_types=["full", "shared", "full", "shared"], rope_parameters=rope())),
    "qwen3-next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", DELTA | dict(linear_key_head_dim=24, linear_value_head_dim=20, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, shared_expert_intermediate_size=28,
                   mlp_only_layers=[1], norm_topk_prob=True, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"])),
    "qwen3.5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", DELTA | dict(linear_num_value_heads=2, tie_word_embeddings=True)),
    "qwen3.5-moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", DELTA | dict(num_hidden_layers=2, linear_key_head_dim=24, linear_value_head_dim=20, num_experts=5, num_experts_per_tok=2,
                    moe_intermediate_size=20, shared_expert_intermediate_size=24, layer_types=["linear_attention", "full_attention"], drop=("intermediate_size",))),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM", dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=WINDOW, swiglu_limit=0.8,
                output_router_logits=True, router_aux_loss_coef=0.25, rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=4.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=16))),
    "glm4": ("Glm4Config", "Glm4ForCausalLM", dict(rope_parameters=rope(partial_rotary_factor=0.5), eos_token_id=[2, 3], attention_bias=False)),
}


for file in sorted(pathlib.Path(__file__).with_name("families").glob("*.json")):
    case = json.loads(file.read_text())
    CASES[file.stem] = case["config"], case["model"], (SMALL if case.get("small") else {}) | case["facts"]


def make(name):
    config_class, model_class, changes = CASES[name]
    # a row of padding would get no gradient of the embedding
    facts = SHAPE | dict(bos_token_id=1, eos_token_id=2, pad_token_id=None) | changes
    drop = facts.pop("drop", ())
    facts = {k: v for k, v in facts.items() if k not in drop}
    config = getattr(transformers, config_class)(**facts, attn_implementation="eager")
    for key, value in facts.items():
        if key.endswith(("dropout", "pdrop")):
            assert value == 0
    model = getattr(transformers, model_class)(config).eval()
    return config, model


def tame(model, config):
    """Float32 shall decide the gradients of layers with the delta rule: rows are not short, states are not forgotten at once, and queries are like
    keys. Else the norm of what a first token reads, a value times a product near 0, jumps when that changes its sign."""
    d, all_keys = config.linear_key_head_dim, config.linear_key_head_dim * config.linear_num_key_heads
    with torch.no_grad():
        for name, t in model.named_parameters():
            if "conv1d" in name:
                t[..., -1] += 1
                t[:all_keys] = t[all_keys:2 * all_keys] + 0.2 * t[:all_keys]
            elif "A_log" in name:
                t.sub_(2.5)
            elif "in_proj_qkvz" in name:
                heads = t.view(config.linear_num_key_heads, -1, t.shape[1])
                heads[:, :d] = heads[:, d:2 * d] + 0.3 * heads[:, :d]
                t.mul_(3)
            elif "in_proj_qkv" in name:
                t[:all_keys] = t[all_keys:2 * all_keys] + 0.3 * t[:all_keys]
                t.mul_(3)


class Case(base.Case):
    def __init__(self, name):
        self.path, self.family, self.mtp = base.OUT / name, name, False
        gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        config, self.model = make(name)
        self.write_config = config.save_pretrained
        base.randomize(self.model, gen)
        for name, t in self.model.state_dict().items():  # what experts are chosen by is no parameter in PyTorch
            if "correction_bias" in name or name.endswith(".expert_bias"):
                t.copy_(torch.randn(t.shape, generator=gen) * 0.05)
        if "linear_attention" in (getattr(config, "layer_types", None) or []):
            tame(self.model, config)
        self.ids, self.positions, self.mask, document = base.batch(gen)
        self.ids %= config.vocab_size
        self.targets = base.shift(self.ids, document, 1)
        self.tensors = dict(ids=self.ids.int(), positions=self.positions.int(), targets=self.targets.int())
        kinds = getattr(config, "layer_types", None)
        self.window = getattr(config, "sliding_window", None)
        self.kinds = set(kinds or [])
        self.balance = config.router_aux_loss_coef if getattr(config, "output_router_logits", False) else 0
        for name, module in self.model.named_modules():
            if self.balance and name.endswith(("mlp.gate", "mlp.router")):
                module.register_forward_hook(lambda _, args, out: self.router.append(out[0]))

    def logits(self, dtype=torch.float32):
        mask = self.mask.to(dtype)
        if self.window:
            n = mask.shape[-1]
            near = torch.arange(n)[None] > torch.arange(n)[:, None] - self.window
            sliding = mask.masked_fill(~near, torch.finfo(dtype).min)
            mask = dict(full_attention=mask, sliding_attention=sliding) if self.kinds else sliding
        # the model's own loss of balance takes no mask of packed sequences
        more = dict(output_router_logits=False) if self.balance else {}
        self.router = []
        if self.kinds & {"linear_attention", "conv"}:  # which know no borders of packed documents: each goes by itself
            rows = []
            for ids, places, lengths in zip(self.ids, self.positions, base.DOCUMENTS):
                if len(ids) != sum(lengths):  # one of them, for check_packing
                    lengths = [len(ids)]
                parts = [self.model(input_ids=i[None], position_ids=p[None], use_cache=False).logits[0]
                         for i, p in zip(ids.split(lengths), places.split(lengths))]
                rows.append(torch.cat(parts))
            return [torch.stack(rows)]
        return [self.model(input_ids=self.ids, position_ids=self.positions, attention_mask=mask, use_cache=False, **more).logits]

    def loss(self):
        loss, logits = super().loss()
        if self.balance:
            config = self.model.config
            self.lm_loss = loss.item()
            loss = loss + self.balance * load_balancing_loss_func(tuple(self.router), config.num_local_experts, config.num_experts_per_tok)
        return loss, logits

    def facts(self):
        return dict(balance=self.balance, lm_loss=self.lm_loss) if self.balance else {}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or CASES:
        torch.manual_seed(0)
        case = Case(name)
        if "long" not in name:  # whose frequencies depend on the longest sequence
            case.check_packing()
        case.write(True)
        print(name)


if __name__ == "__main__":
    main()
