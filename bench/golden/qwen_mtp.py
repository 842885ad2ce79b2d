"""Golden data of Qwen3-Next and of Qwen3.5 with images, with the layer that predicts a further token: actors/host/testdata/{qwen3-next,qwen3.5-vision}-mtp/
as family_layers.py and vlm_golden.py write theirs.

transformers passes the weights `mtp.*` over. They are put together here as vLLM's qwen3_next_mtp.py and qwen3_5_mtp.py run them: `fc` joins the normed
embedding of the next token, with images' features where they have taken their places, and the normed last hidden state, behind the model's final norm; one
layer of full attention at the same positions and `norm` follow; embedding and head are the model's.

Run from the repository's root: python bench/golden/qwen_mtp.py
"""

import json
import pathlib

import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextDecoderLayer, Qwen3NextRMSNorm

import family_golden as base
import family_layers
import vlm_golden

HERE = pathlib.Path("actors/host/testdata")


class Further(torch.nn.Module):
    """The tensors `mtp.*` of a checkpoint."""

    def __init__(self, config, layer, norm):
        super().__init__()
        h, eps = config.hidden_size, config.rms_norm_eps
        self.fc = torch.nn.Linear(2 * h, h, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(h, eps), norm(h, eps), norm(h, eps)
        self.layers = torch.nn.ModuleList([layer(config, config.layer_types.index("full_attention"))])

    def forward(self, embedded, hidden, turns):
        """Of one document [1, T, H], whose embeddings are those of its own tokens."""
        after = torch.cat([embedded[:, 1:], torch.zeros_like(embedded[:, :1])], 1)
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(after), self.pre_fc_norm_hidden(hidden)], -1))
        n = x.shape[1]
        mask = torch.full((n, n), torch.finfo(x.dtype).min).triu(1)[None, None]
        return self.norm(self.layers[0](x, position_embeddings=turns, attention_mask=mask))


class Text(family_layers.Case):
    def __init__(self):
        make = family_layers.make

        def with_layer(name):
            config, model = make("qwen3-next")
            model.mtp = Further(config, Qwen3NextDecoderLayer, Qwen3NextRMSNorm)
            return config, model

        family_layers.make = with_layer
        super().__init__("qwen3-next-mtp")
        family_layers.make = make
        self.path, self.mtp = HERE / "qwen3-next-mtp", True
        document = torch.zeros_like(self.ids)
        for b, lengths in enumerate(base.DOCUMENTS):
            at = 0
            for d, n in enumerate(lengths):
                document[b, at:at + n], at = d, at + n
        self.mtp_targets = base.shift(self.ids, document, 2)
        self.tensors |= dict(mtp_targets=self.mtp_targets.int())

    def logits(self, dtype=torch.float32):
        m, rows = self.model.model, []
        for ids, places, lengths in zip(self.ids, self.positions, base.DOCUMENTS):
            parts = []
            for i, p in zip(ids.split(lengths), places.split(lengths)):
                hidden = m(input_ids=i[None], position_ids=p[None], use_cache=False).last_hidden_state
                embedded = m.embed_tokens(i[None])
                more = self.model.mtp(embedded, hidden, m.rotary_emb(hidden, position_ids=p[None]))
                parts.append(torch.cat([hidden, more]))
            rows.append(torch.cat(parts, 1))
        return list(self.model.lm_head(torch.stack(rows, 1)))


class Seeing(vlm_golden.Case):
    def __init__(self):
        make = vlm_golden.CASES["qwen3.5-vision"]

        def with_layer():
            cls, config = make()

            def build(config):
                model = cls(config)
                model.mtp = Further(config.text_config, Qwen3_5DecoderLayer, Qwen3_5RMSNorm)
                return model
            return build, config

        vlm_golden.CASES["qwen3.5-vision-mtp"] = with_layer
        super().__init__("qwen3.5-vision-mtp")
        self.path = HERE / "qwen3.5-vision-mtp"

    def loss(self):
        m, seen = self.model.model, {}
        hook = m.language_model.register_forward_pre_hook(lambda _, args, more: seen.update(more), with_kwargs=True)
        logits, further, targets, after = [], [], [], []
        for doc in self.docs:
            hidden = m(**self.arguments(doc), use_cache=False).last_hidden_state
            embedded = seen["inputs_embeds"]
            turns = m.language_model.rotary_emb(hidden, self.positions(doc).T[:, None])
            logits.append(self.model.lm_head(hidden)[0])
            further.append(self.model.lm_head(self.model.mtp(embedded, hidden, turns))[0])
            targets += self.targets(doc)
            after += self.targets(doc)[1:] + [-100]
        hook.remove()
        logits, targets = torch.cat(logits), torch.tensor(targets)
        return (base.cross_entropy(logits[None], targets) + base.MTP_WEIGHT * base.cross_entropy(torch.cat(further)[None], torch.tensor(after)), logits, targets)

    def write(self):
        super().write()
        path = self.path / "golden.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(mtp_weight=base.MTP_WEIGHT), indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    Text().write(True)
    Seeing().write()


if __name__ == "__main__":
    main()
