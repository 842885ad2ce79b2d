"""Golden data of stages/family: tiny models with random weights, and what PyTorch computes with them.

For each case stages/family/testdata/<case>/ gets
  config.json, model.safetensors   a Hugging Face directory
  golden.safetensors               ids, positions, targets [2, T] (target -100: not counted), logits [2, T, V];
                                   grad.<weight> for every weight; MTP models: next_ids, mtp_targets, mtp_logits
  golden.json                      loss; 20 steps of AdamW on the same batch: loss before each update, gradient norm before
                                   clipping, loss after the last; and the settings

Models come from transformers where it has the family, else from family_modules.py. Everything is float32 on one thread, with
plain ("eager") attention. The second sequence is packed: two documents, positions start again, attention
does not cross.

Run from the repository's root: python bench/golden/family_golden.py [case ...]. The same versions of torch and transformers give the same bytes.
"""

import copy
import json
import pathlib
import shutil
import sys
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

import family_modules

OUT = pathlib.Path("stages/family/testdata")
T, VOCAB = 24, 256
DOCUMENTS = [[24], [9, 15]]  # lengths, by sequence
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
DECAY, CLIP, STEPS, MTP_WEIGHT = 0.1, 1.0, 20, 0.1

SHAPE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=12, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
TRANSFORMERS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)

# name: (family, what differs from SHAPE, grads). Without grads a case is only about the forward.
CASES = {
    "llama2": ("llama", dict(num_key_value_heads=4, num_hidden_layers=3), True),
    "llama3.1": ("llama", dict(rope_theta=500000.0, rope_scaling=LLAMA3), True),
    "llama3.2": ("llama", dict(rope_theta=500000.0, rope_scaling=LLAMA3 | dict(factor=32.0), tie_word_embeddings=True), True),
    "llama-linear": ("llama", dict(rope_scaling=dict(rope_type="linear", factor=2.0)), False),
    "llama-dynamic": ("llama", dict(max_position_embeddings=16, rope_scaling=dict(rope_type="dynamic", factor=2.0)), False),
    "llama-yarn": ("llama", dict(rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)), False),
    "qwen2": ("qwen2", dict(rms_norm_eps=1e-6, rope_theta=1000000.0), True),
    "qwen2-tied": ("qwen2", dict(rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True), True),
    "qwen3": ("qwen3", dict(rms_norm_eps=1e-6, rope_theta=1000000.0, head_dim=16), True),
    "qwen3-tied": ("qwen3", dict(rms_norm_eps=1e-6, rope_theta=1000000.0, head_dim=16, tie_word_embeddings=True), True),
    "qwen": ("qwen", dict(rms_norm_eps=1e-6, num_key_value_heads=4), True),
    "internlm2": ("internlm2", dict(rope_theta=1000000.0), True),
    "mimo": ("mimo", dict(rope_theta=640000.0, num_nextn_predict_layers=1), True),
    "baichuan2": ("baichuan", dict(rms_norm_eps=1e-6, num_key_value_heads=4), True),
    # six heads: slopes of no power of two
    "baichuan2-alibi": ("baichuan", dict(rms_norm_eps=1e-6, num_attention_heads=6, num_key_value_heads=6, head_dim=8, position_embeddings="alibi"), True),
}
SEEDED = [n for n in sorted(CASES) if not n.startswith("baichuan")]  # by their place in this list; others by their name


def config_json(c):
    """The config.json of the families that transformers lacks, with the keys of the published ones."""
    out = dict(model_type=c["model_type"], hidden_act="silu", torch_dtype="float32", initializer_range=0.02)
    if c["model_type"] == "qwen":
        names = dict(rms_norm_eps="layer_norm_epsilon", rope_theta="rotary_emb_base", head_dim="kv_channels")
        drop = {"num_key_value_heads"}
        out |= dict(architectures=["QWenLMHeadModel"], no_bias=True, rotary_pct=1.0, scale_attn_weights=True, attn_dropout_prob=0.0,
                    emb_dropout_prob=0.0, use_dynamic_ntk=True, use_logn_attn=True, seq_length=c["max_position_embeddings"])
    elif c["model_type"] == "baichuan":
        names, drop = {}, {"head_dim", "num_key_value_heads", "rope_theta", "position_embeddings"}
        out |= dict(architectures=["BaichuanForCausalLM"], model_max_length=c["max_position_embeddings"], z_loss_weight=0, bos_token_id=1, eos_token_id=2)
        if c.get("position_embeddings") == "alibi":
            drop.add("max_position_embeddings")
    elif c["model_type"] == "internlm2":
        names, drop = {}, {"head_dim"}
        out |= dict(architectures=["InternLM2ForCausalLM"], bias=False, rope_scaling=dict(type="dynamic", factor=2.0), bos_token_id=1, eos_token_id=2)
    else:
        names, drop = {}, set()
        out |= dict(architectures=["MiMoForCausalLM"], attention_bias=True, rope_scaling=None, use_sliding_window=False)
    out |= {names.get(k, k): v for k, v in c.items() if k not in drop}
    if c["model_type"] == "qwen":
        out["intermediate_size"] *= 2  # gate and up together
    return out


def make(family, changes):
    """Returns the model, and a function that writes its config.json to a directory."""
    facts = SHAPE | changes
    if family not in TRANSFORMERS:
        c = dict(model_type=family) | facts
        model = family_modules.build(c)
        return model, lambda path: (path / "config.json").write_text(json.dumps(config_json(c), indent=2) + "\n")
    config_class, model_class = TRANSFORMERS[family]
    config = config_class(**facts, attention_dropout=0.0, attn_implementation="eager", bos_token_id=1, eos_token_id=2)
    model = model_class(config)
    return model, lambda path: config.save_pretrained(path)


def randomize(model, gen):
    """Weights that make every parameter count: norms around 1, biases not 0."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            if p.dim() > 1:
                p.copy_(noise * 0.15)
            elif "bias" in name:
                p.copy_(noise * 0.1)
            else:
                p.copy_(1 + noise * 0.1)


def batch(gen):
    ids = torch.randint(0, VOCAB, (len(DOCUMENTS), T), generator=gen)
    positions, document = torch.zeros_like(ids), torch.zeros_like(ids)
    for b, lengths in enumerate(DOCUMENTS):
        at = 0
        for d, n in enumerate(lengths):
            positions[b, at:at + n], document[b, at:at + n] = torch.arange(n), d
            at += n
    seen = (document[:, :, None] == document[:, None, :]) & torch.ones(T, T).tril().bool()
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
    return ids, positions, mask, document


def shift(ids, document, by):
    """The token by places on, -100 where that is another document's or none."""
    out = torch.full_like(ids, -100)
    out[:, :-by] = torch.where(document[:, by:] == document[:, :-by], ids[:, by:], -100)
    return out


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)


class Case:
    def __init__(self, name, family, changes):
        self.path, self.family = OUT / name, family
        gen = torch.Generator().manual_seed(1 + SEEDED.index(name) if name in SEEDED else zlib.crc32(name.encode()))
        self.model, self.write_config = make(family, changes)
        randomize(self.model, gen)
        self.ids, self.positions, self.mask, document = batch(gen)
        self.targets = shift(self.ids, document, 1)
        self.tensors = dict(ids=self.ids.int(), positions=self.positions.int(), targets=self.targets.int())
        self.mtp = "num_nextn_predict_layers" in changes
        if self.mtp:
            # What the layer sees at the end of a document reaches no counted loss.
            self.next_ids = shift(self.ids, document, 1).clamp(min=0)
            self.mtp_targets = shift(self.ids, document, 2)
            self.tensors |= dict(next_ids=self.next_ids.int(), mtp_targets=self.mtp_targets.int())

    def logits(self, dtype=torch.float32):
        if self.family in TRANSFORMERS:
            out = self.model(input_ids=self.ids, position_ids=self.positions, attention_mask=self.mask.to(dtype), use_cache=False)
            return [out.logits]
        if self.mtp:
            return list(self.model(self.ids, self.positions, self.mask, self.next_ids))
        return [self.model(self.ids, self.positions, self.mask)]

    def loss(self):
        logits = self.logits()
        loss = cross_entropy(logits[0], self.targets)
        if self.mtp:
            loss = loss + MTP_WEIGHT * cross_entropy(logits[1], self.mtp_targets)
        return loss, logits

    def facts(self):
        """What golden.json says besides."""
        return {}

    def curve(self):
        params = {k: p for k, p in self.model.named_parameters() if p.requires_grad and ".indexer." not in k}
        decays = {k for k, p in params.items() if p.dim() > 1 and not k.endswith("_bias")}  # all experts' biases have two axes
        groups = [dict(params=[p for k, p in params.items() if k in decays], weight_decay=DECAY),
                  dict(params=[p for k, p in params.items() if k not in decays], weight_decay=0.0)]
        optimizer = torch.optim.AdamW(groups, foreach=False, fused=False, **ADAMW)
        losses, norms = [], []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = self.loss()[0]
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(params.values(), CLIP).item())
            optimizer.step()
            losses.append(loss.item())
        return dict(losses=losses, grad_norms=norms, final_loss=self.loss()[0].item(), steps=STEPS, clip_grad=CLIP, weight_decay=DECAY,
                    weight_decay_on="parameters with 2 or more axes", lr=ADAMW["lr"], betas=ADAMW["betas"], eps=ADAMW["eps"])

    def write(self, grads):
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.write_config(self.path)
        kept = {k: v for k, v in self.model.state_dict().items() if "correction_bias" in k or k.endswith(".expert_bias")}  # no parameters of transformers
        save_file({k: v.detach().clone() for k, v in (dict(self.model.named_parameters()) | kept).items()}, self.path / "model.safetensors", metadata={"format": "pt"})
        facts = dict(documents=DOCUMENTS, versions=dict(torch=torch.__version__))
        loss, logits = self.loss()
        facts["loss"] = loss.item()
        facts |= self.facts()
        self.tensors["logits"] = logits[0].detach().contiguous()
        if self.mtp:
            facts |= dict(main_loss=cross_entropy(logits[0], self.targets).item(), mtp_loss=cross_entropy(logits[1], self.mtp_targets).item(), mtp_weight=MTP_WEIGHT)
            self.tensors["mtp_logits"] = logits[1].detach().contiguous()
        if grads:
            loss.backward()
            self.tensors |= {f"grad.{k}": p.grad.detach().clone() for k, p in self.model.named_parameters() if p.grad is not None}
            if self.path.name == "qwen2":
                facts["bf16"] = self.bf16()
            facts["adamw"] = self.curve()
        save_file(self.tensors, self.path / "golden.safetensors")
        (self.path / "golden.json").write_text(json.dumps(facts, indent=1) + "\n")

    def bf16(self):
        """The forward with weights and activations in bfloat16; rotary tables stay float32, and losses are taken of float32
        logits."""
        kept, self.model = self.model, copy.deepcopy(self.model)
        with torch.no_grad():
            for p in self.model.parameters():
                p.data = p.data.to(torch.bfloat16)
            logits = self.logits(torch.bfloat16)[0]
        self.model = kept
        self.tensors["bf16.logits"] = logits.float().contiguous()
        return dict(loss=cross_entropy(logits, self.targets).item())

    def check_packing(self):
        """Each document by itself must give the logits it has in the batch."""
        packed = self.logits()[0]
        kept = self.ids, self.positions, self.mask
        for b, lengths in enumerate(DOCUMENTS):
            at = 0
            for n in lengths:
                self.ids, self.positions = kept[0][b:b + 1, at:at + n], torch.arange(n)[None]
                self.mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
                if self.mtp:
                    alone = self.model(self.ids, self.positions, self.mask)
                else:
                    alone = self.logits()[0]
                torch.testing.assert_close(alone[0], packed[b, at:at + n], rtol=1e-4, atol=1e-5)
                at += n
        self.ids, self.positions, self.mask = kept


def check_modules():
    """The decoders of family_modules.py against transformers' Qwen2 and Llama, which compute the same from other layouts."""
    gen = torch.Generator().manual_seed(0)
    ids, positions, mask, _ = batch(gen)
    for family, peer, names in [
        ("qwen", "qwen2", {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_proj": "self_attn.o_proj", "mlp.w2": "mlp.gate_proj",
                           "mlp.w1": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj", "transformer.wte": "model.embed_tokens",
                           "transformer.ln_f": "model.norm", "transformer.h.": "model.layers."}),
        ("internlm2", "llama", {"attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attention.wo": "self_attn.o_proj",
                                "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj",
                                "tok_embeddings": "embed_tokens", "output.": "lm_head."}),
        ("mimo", "qwen2", {}),
        ("baichuan", "llama", {}),
    ]:
        changes = dict(num_key_value_heads=4) if family in ("qwen", "baichuan") else {}
        ours, theirs = make(family, changes)[0], make(peer, changes)[0]
        randomize(ours, gen)
        heads, kv, dim = SHAPE["num_attention_heads"], changes.get("num_key_value_heads", SHAPE["num_key_value_heads"]), SHAPE["head_dim"]
        state = {}
        for name, p in ours.named_parameters():
            for old, new in names.items():
                name = name.replace(old, new)
            if "wqkv" in name:  # for each key head: its query heads, key, value
                p = p.detach().view(kv, heads // kv + 2, dim, -1)
                parts = p[:, :-2].flatten(0, 2), p[:, -2].flatten(0, 1), p[:, -1].flatten(0, 1)
            elif "c_attn" in name or "W_pack" in name:
                parts = p.chunk(3)
            elif family == "baichuan" and name == "lm_head.weight":
                state[name] = F.normalize(p)
                continue
            else:
                state[name] = p
                continue
            for letter, part in zip("qkv", parts):
                state[name.replace("attention.wqkv", f"self_attn.{letter}_proj").replace("attn.c_attn", f"self_attn.{letter}_proj").replace("W_pack", f"{letter}_proj")] = part
        theirs.load_state_dict(state)
        want = theirs(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
        torch.testing.assert_close(ours(ids, positions, mask), want, rtol=1e-4, atol=1e-5)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    check_modules()
    for name in sys.argv[1:] or CASES:
        family, changes, grads = CASES[name]
        torch.manual_seed(0)
        case = Case(name, family, changes)
        if name != "llama-dynamic":  # whose frequencies depend on the longest sequence
            case.check_packing()
        case.write(grads)
        print(name)


if __name__ == "__main__":
    main()
