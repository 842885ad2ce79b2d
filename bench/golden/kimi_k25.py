"""Golden data of Kimi K2.5, as vlm_golden.py writes it: stages/family/testdata/kimi-k2.5/. Patches of an image lie square after square here, as they
join, and row after row in transformers. Gradients have the names and the layout of published weights because they are saved as weights are. Two faults of
transformers 5.23 are gone around: it cuts features by grids that count every frame, though features are means over them, and its names of what it saves are
published ones but for three beginnings.

Run from the repository's root: python bench/golden/kimi_k25.py; with the word counts it compares the published size's parameters with transformers'.
"""

import json
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import Kimi_K25Config, Kimi_K25ForConditionalGeneration

import vlm_golden
from vlm_golden import END, IMAGE, START, TEXT, TOP, VIDEO, rope, tied


def kimi():
    vision = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=24, patch_size=4, pos_emb_height=5, pos_emb_width=5, pos_emb_time=4)
    text = TEXT | tied(False) | dict(model_type="deepseek_v3", num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=12, v_head_dim=14,
                                     moe_intermediate_size=20, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
                                     routed_scaling_factor=2.0, num_mtp_layers=0) | rope(5e4)
    return Kimi_K25ForConditionalGeneration, Kimi_K25Config(text_config=text, vision_config=vision, projection_hidden_size=16, **TOP, **tied(False))


vlm_golden.CASES["kimi-k2.5"] = kimi


def published(place):
    """Gives what save_pretrained wrote the published beginnings."""
    file = f"{place}/model.safetensors"
    out = {}
    for k, v in load_file(file).items():
        for wrong, right in (("language_model.model.blocks.", "language_model.model.layers."), ("model.mm_projector.", "mm_projector."),
                             ("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")):
            if k.startswith(wrong):
                k = right + k[len(wrong):]
        out[k] = v.clone()
    save_file(out, file, metadata={"format": "pt"})


def rows(t, h, w):
    """The place, row after row, of each patch in the order of squares of two by two."""
    at = torch.arange(t * h * w).view(t, h // 2, 2, w // 2, 2)
    return at.permute(0, 1, 3, 2, 4).reshape(-1)


class Case(vlm_golden.Case):
    def __init__(self):
        super().__init__("kimi-k2.5")
        m = self.model.model

        def features(pixels, grid, **_):
            return types.SimpleNamespace(pooler_output=(m.mm_projector(m.vision_tower(pixels, grid_thw=grid).pooler_output).squeeze(1),))

        m.get_image_features = m.get_video_features = features
        with torch.no_grad():
            for n, b in self.model.named_buffers():
                if "correction_bias" in n:
                    b.copy_(torch.randn(b.shape, generator=self.gen) * 0.05)

    def document(self, parts):
        ids, images, values = self.words(4), [], []
        for kind, (t, h, w) in parts:
            ids += [START]
            spans = [[len(ids), len(ids) + h * w // 4]]
            ids += [IMAGE if kind == "image" else VIDEO] * (h * w // 4) + [END] + self.words(3)
            values.append(torch.randn(t * h * w, 3 * 4 * 4, generator=self.gen))
            images.append(dict(grid=[t, h, w], spans=spans, video=kind == "video", every=0))
        return dict(ids=ids, images=images, values=values)

    def arguments(self, doc):
        out = dict(input_ids=torch.tensor([doc["ids"]]))
        out["attention_mask"] = torch.ones_like(out["input_ids"])
        for video, names in ((False, ("pixel_values", "image_grid_thw")), (True, ("pixel_values_videos", "video_grid_thw"))):
            mine = [(p["grid"], v) for p, v in zip(doc["images"], doc["values"]) if p["video"] == video]
            if mine:
                plain = []
                for grid, v in mine:
                    one = torch.empty_like(v)
                    one[rows(*grid)] = v
                    plain.append(one.view(-1, 3, 4, 4))
                out[names[0]], out[names[1]] = torch.cat(plain), torch.tensor([g for g, _ in mine])
        return out

    def positions(self, _):
        return torch.zeros(0)

    def write(self):
        super().write()
        file = self.path / "golden.safetensors"  # places of tokens have one axis
        save_file({k: v.clone() for k, v in load_file(file).items() if k != "positions"}, file)

    def saved_names(self):
        """Gradients as save_pretrained names and lays out weights."""
        published(self.path)
        again = Kimi_K25ForConditionalGeneration.from_pretrained(self.path)
        for (n, p), q in zip(self.model.state_dict().items(), again.state_dict().values()):
            torch.testing.assert_close(p, q, rtol=0, atol=0, msg=n)
        grads = Kimi_K25ForConditionalGeneration(self.config)
        with torch.no_grad(), tempfile.TemporaryDirectory() as place:
            for (n, p), q in zip(grads.named_parameters(), self.model.parameters()):
                p.copy_(torch.zeros_like(q) if q.grad is None else q.grad)
            grads.save_pretrained(place)
            published(place)
            self.laid = {k: v for k, v in load_file(place + "/model.safetensors").items() if "correction_bias" not in k}
        names = list(self.laid)
        first, *others = [n for n, _ in self.model.named_parameters()]
        return {first: [(k, lambda _, k=k: self.laid[k]) for k in names]} | {n: [] for n in others}


def counts():
    """Numbers that experts are chosen by are buffers of transformers, and count."""
    text = dict(model_type="deepseek_v3", hidden_size=7168, num_hidden_layers=61, num_attention_heads=64, num_key_value_heads=64, intermediate_size=18432, vocab_size=163840,
                q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=384, num_experts_per_tok=8,
                moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, num_mtp_layers=0) | tied(False)
    with torch.device("meta"):
        m = Kimi_K25ForConditionalGeneration(Kimi_K25Config(text_config=text, vision_config={}, **tied(False)))
    all_of = dict(m.named_parameters()) | {k: b for k, b in m.named_buffers() if "correction_bias" in k}
    n, experts = (sum(p.numel() for k, p in all_of.items() if part in k) for part in ("", ".experts."))
    have = [json.loads(open(f"configs/testdata/{f}.json").read())["kimi/k2.5"] for f in ("parameters", "active")]
    assert have == [n, n - experts + experts // 384 * 8], (have, n, experts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["counts"]:
        counts()
    else:
        Case().write()
