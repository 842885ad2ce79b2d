"""Golden data of ERNIE 4.5 with images, as vlm_golden.py writes it: stages/family/testdata/ernie4.5-vl/, and ernie4.5-vl-aux, which has the loss of
balance in the model's. Tokens that begin and end an image or a video are tokens of images to the experts; videos have an even number of frames, of which
two make a feature. Gradients have the names and the layout of saved weights because they are saved as weights are.

Run from the repository's root: python bench/golden/ernie_vl.py; with the word counts it compares the published sizes' parameters with transformers'.
"""

import json
import sys
import tempfile

import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file
from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeForConditionalGeneration

import vlm_golden
from vlm_golden import END, IMAGE, START, TEXT, VIDEO, rope, tied

VIDEO_START, VIDEO_END = 114, 115
TOKENS = dict(image_token_id=IMAGE, video_token_id=VIDEO, image_start_token_id=START, image_end_token_id=END, video_start_token_id=VIDEO_START, video_end_token_id=VIDEO_END)


def ernie(tie, aux):
    """Six experts of two widths, an odd one for images; frequencies of a head of 20: 3 of height and of width, 4 of time."""
    vision = dict(depth=2, hidden_size=16, num_heads=2, intermediate_size=24, patch_size=4)
    text = TEXT | tied(tie) | dict(head_dim=20, moe_num_experts=6, moe_k=2, moe_intermediate_size=[20, 10], moe_num_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"])
    if aux:
        text |= dict(output_router_logits=True, router_aux_loss_coef=0.02, moe_num_shared_experts=0)
    text |= rope(5e5, mrope_section=[3, 3, 4])
    return Ernie4_5_VLMoeForConditionalGeneration, Ernie4_5_VLMoeConfig(text_config=text, vision_config=vision, attn_implementation="eager", experts_implementation="eager", **TOKENS, **tied(tie))


vlm_golden.CASES["ernie4.5-vl"] = lambda: ernie(True, False)
vlm_golden.CASES["ernie4.5-vl-aux"] = lambda: ernie(False, True)


class Case(vlm_golden.Case):
    def __init__(self, name):
        super().__init__(name)
        with torch.no_grad():
            for n, b in self.model.named_parameters():
                if "correction_bias" in n:
                    b.copy_(torch.randn(b.shape, generator=self.gen) * 0.05)
                    b.requires_grad = False

    def documents(self):
        one, two = [("image", (1, 4, 6))], [("image", (1, 2, 2)), ("image", (1, 10, 6))]
        video, mixed = [("video", (4, 4, 4))], [("image", (1, 6, 4)), ("video", (2, 2, 4))]
        self.docs = [self.document(parts) for parts in (one, two, video, [], mixed)]

    def document(self, parts):
        ids, images, values = self.words(4), [], []
        for kind, (t, h, w) in parts:
            token, start, end = (IMAGE, START, END) if kind == "image" else (VIDEO, VIDEO_START, VIDEO_END)
            n = (t + 1) // 2 * h * w // 4
            ids += [start]
            spans = [[len(ids), len(ids) + n]]
            ids += [token] * n + [end] + self.words(3)
            values.append(torch.randn(t * h * w, 3 * 4 * 4, generator=self.gen))
            images.append(dict(grid=[t, h, w], spans=spans, video=kind == "video", every=0))
        return dict(ids=ids, images=images, values=values)

    def arguments(self, doc):
        out = super().arguments(doc)
        ids = out["input_ids"]
        out["moe_mm_token_type_ids"] = sum((ids == t).int() for t in TOKENS.values())
        return out

    def loss(self):
        """transformers adds a document's loss of balance to it; here all documents are one batch, as they are in a microbatch."""
        if not self.config.text_config.output_router_logits:
            return super().loss()
        outs = [self.model(**self.arguments(d), use_cache=False) for d in self.docs]
        logits = torch.cat([o.logits[0] for o in outs])
        targets = torch.tensor(sum((self.targets(d) for d in self.docs), []))
        from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import load_balancing_loss_func
        layers = tuple(torch.cat([o.router_logits[i] for o in outs]) for i in range(len(outs[0].router_logits)))
        text = self.config.text_config
        aux = load_balancing_loss_func(layers, text.num_experts, text.num_experts_per_tok)
        self.plain = F.cross_entropy(logits.float(), targets, ignore_index=-100)
        return self.plain + text.router_aux_loss_coef * aux, logits, targets

    def write(self):
        text = self.config.text_config
        if text.output_router_logits:
            self.loss()
            plain = self.plain.item()
        super().write()
        if text.output_router_logits:
            file = self.path / "golden.json"
            facts = json.loads(file.read_text()) | dict(balance=text.router_aux_loss_coef, lm_loss=plain)
            file.write_text(json.dumps(facts, indent=1) + "\n")

    def saved_names(self):
        """Gradients as save_pretrained names and lays out weights."""
        again = Ernie4_5_VLMoeForConditionalGeneration.from_pretrained(self.path)
        for (n, p), q in zip(self.model.state_dict().items(), again.state_dict().values()):
            torch.testing.assert_close(p, q, rtol=0, atol=0, msg=n)
        grads = Ernie4_5_VLMoeForConditionalGeneration(self.config)
        with torch.no_grad(), tempfile.TemporaryDirectory() as place:
            for (n, p), q in zip(grads.named_parameters(), self.model.parameters()):
                p.copy_(torch.zeros_like(q) if q.grad is None else q.grad)
            grads.save_pretrained(place)
            self.laid = {k: v for k, v in load_file(place + "/model.safetensors").items() if "correction_bias" not in k}
        names = list(self.laid)
        first, *others = [n for n, _ in self.model.named_parameters()]
        return {first: [(k, lambda _, k=k: self.laid[k]) for k in names]} | {n: [] for n in others}


def counts():
    """Counts both sizes on the meta device and writes them where they are claimed; a token of text passes no expert for images."""
    table = {f: json.loads(open(f"configs/testdata/{f}.json").read()) for f in ("parameters", "active")}
    for size in ("vl-28b-a3b", "vl-424b-a47b"):
        name, path = f"ernie/4.5-{size}", f"configs/models/ernie/4.5-{size}.yaml"
        lines = open(path).read().splitlines()
        d = yaml.safe_load("\n".join(lines))
        v, same = d["vision"], ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size")
        text = {k: d[k] for k in same} | tied(d["tie_word_embeddings"]) | dict(moe_num_experts=d["num_experts"], moe_k=d["num_experts_per_tok"],
            moe_intermediate_size=d["moe_intermediate_sizes"], moe_num_shared_experts=d.get("n_shared_experts", 0),
            mlp_layer_types=["dense" if i < d["first_k_dense_replace"] else "sparse" for i in range(d["num_hidden_layers"])])
        vision = {k: v[k] for k in ("depth", "hidden_size", "intermediate_size", "num_heads", "patch_size")}
        with torch.device("meta"):
            m = Ernie4_5_VLMoeForConditionalGeneration(Ernie4_5_VLMoeConfig(text_config=text, vision_config=vision, **tied(d["tie_word_embeddings"])))
        m.tie_weights()
        every = {id(p): (n, p.numel()) for n, p in m.named_parameters()}.values()
        total = sum(n for _, n in every)
        images, texts = (sum(n for k, n in every if part in k) for part in ("vision_moe", "text_moe.experts"))
        active = total - images - texts + texts // d["num_experts"] * d["num_experts_per_tok"]
        table["parameters"][name], table["active"][name] = total, active
        lines = [f"parameters: {total}" if l.startswith("parameters:") else f"active_parameters: {active}" if l.startswith("active_parameters:") else l for l in lines]
        open(path, "w").write("\n".join(lines) + "\n")
        print(name, total, active)
    for f, t in table.items():
        open(f"configs/testdata/{f}.json", "w").write(json.dumps(dict(sorted(t.items())), indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["counts"]:
        counts()
    else:
        for name in ("ernie4.5-vl", "ernie4.5-vl-aux"):
            Case(name).write()
            print(name)
