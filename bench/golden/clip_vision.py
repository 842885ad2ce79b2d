"""CLIP's vision encoder as WanImageToVideoPipeline uses it: stages/texts/testdata/clip-vision/ with a small one, its processor, an
image, and hidden_states[-2].

Run from the repository's root: python bench/golden/clip_vision.py, with torch and transformers 5.24.
"""

import base64
import io
import json
import pathlib

import numpy
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPVisionConfig, CLIPVisionModel

OUT = pathlib.Path("stages/texts/testdata/clip-vision")


def main():
    torch.manual_seed(0)
    m = CLIPVisionModel(CLIPVisionConfig(hidden_size=12, intermediate_size=20, num_hidden_layers=3, num_attention_heads=2, image_size=12, patch_size=4, hidden_act="gelu")).eval()
    for p in m.parameters():
        p.data = torch.randn(p.shape) * 0.3 + (1.0 if p.ndim == 1 and float(p.data.mean()) > 0.5 else 0.0)
    m.save_pretrained(OUT)
    processor = CLIPImageProcessor(size=dict(shortest_edge=12), crop_size=dict(height=12, width=12))
    processor.save_pretrained(OUT)
    rng = numpy.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=numpy.uint8)).resize((30, 20), Image.BILINEAR)
    b = io.BytesIO()
    image.save(b, "PNG")
    pixels = processor(images=image, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        states = m(pixels, output_hidden_states=True).hidden_states[-2][0]
    (OUT / "want.json").write_text(json.dumps(dict(image=base64.b64encode(b.getvalue()).decode(), pixels=[round(float(v), 6) for v in pixels.flatten()], states=[round(float(v), 7) for v in states.flatten()])) + "\n")


def whole():
    """A whole CLIP with both encoders, of which pictures are described by their embedding."""
    torch.manual_seed(1)
    m = CLIPModel(CLIPConfig(
        vision_config=dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=12, patch_size=4),
        text_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16),
        projection_dim=6)).eval()
    for p in m.parameters():
        p.data = torch.randn(p.shape) * 0.3 + (1.0 if p.ndim == 1 and float(p.data.mean()) > 0.5 else 0.0)
    out = OUT.parent / "clip-whole"
    m.save_pretrained(out)
    pixels = torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        states = m.vision_model(pixels)
        whole = m.visual_projection(states.pooler_output)[0]
    (out / "want.json").write_text(json.dumps(dict(pixels=[round(float(v), 6) for v in pixels.flatten()], whole=[round(float(v), 7) for v in whole])) + "\n")


if __name__ == "__main__":
    main()
    whole()
