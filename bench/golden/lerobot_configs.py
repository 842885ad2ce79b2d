"""Write stages/family/all/testdata/lerobot.json: the config.json of each of lerobot's policies with all of its keys, as lerobot writes its defaults.

Run: HF_HUB_OFFLINE=1 python bench/golden/lerobot_configs.py. Needs lerobot (made with 0.4.4).
"""
import io
import json
import pathlib

import draccus
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.groot.configuration_groot import GrootConfig
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi0_fast.configuration_pi0_fast import PI0FastConfig
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
from lerobot.policies.vqbet.configuration_vqbet import VQBeTConfig
from lerobot.policies.xvla.configuration_xvla import XVLAConfig

OUT = pathlib.Path(__file__).parents[2] / "stages/family/all/testdata/lerobot.json"


def main():
    out = {}
    for kind in [ACTConfig, DiffusionConfig, PI0Config, PI05Config, PI0FastConfig, SmolVLAConfig, VQBeTConfig, XVLAConfig, GrootConfig]:
        c = kind()
        c.input_features = {"observation.state": PolicyFeature(FeatureType.STATE, (6,)), "observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 96, 96))}
        c.output_features = {"action": PolicyFeature(FeatureType.ACTION, (6,))}
        text = io.StringIO()
        with draccus.config_type("json"):
            draccus.dump(c, text)
        out[c.type] = {"type": c.type, **json.loads(text.getvalue())}
    OUT.write_text(json.dumps(out, indent=1) + "\n")
    print({k: len(v) for k, v in out.items()})


main()
