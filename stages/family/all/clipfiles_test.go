package all

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestClipFiles: what files of FastWAM, LingBot-VA and Cosmos3 say that is not built is refused with its key,
// also where it lies deeper, and what they say of steps and guidance is read.
func TestClipFiles(t *testing.T) {
	for _, c := range []struct{ family, key, value, want string }{
		{"fastwam", "action_video_freq_ratio", "3", "num_video_frames: 9 is no number of frames"},
		{"fastwam", "image_size", "[32, 47]", "image_size: [32,47] is no height and width"},
		{"fastwam", "loss", "7", "loss: 7, want a mapping"},
		{"fastwam", "video_dit_config", `{"action_conditioned": true}`,
			"video_dit_config.action_conditioned: true"},
		{"fastwam", "action_dit_config", `{"num_heads": 3}`,
			"action_dit_config.num_heads: 3, and the stream of video has 4"},
		{"fastwam", "toggle_action_dimensions", "[6]", "toggle_action_dimensions"},
		{"fastwam", "video_scale", "[3, 8, 8]",
			"video_frames: 9, and behind the first the autoencoder takes 3"},
		{"fastwam", "num_video_frames", "6", "video_frames: 6, and behind the first the autoencoder takes 4"},
		{"fastwam", "num_video_frames", `"x"`, `num_video_frames: "x" is no number of frames`},
		{"fastwam", "image_size", `"x"`, `image_size: "x" is no height and width`},
		{"fastwam", "image_size", "[]", "image_size: [] is no height and width"},
		{"fastwam", "action_scheduler", `"a"`, `action_scheduler: "a", want a mapping`},
		{"fastwam", "video_scheduler", "[1]", "video_scheduler: [1], want a mapping"},
		{"fastwam", "video_dit_config", "3", "video_dit_config: 3, want a mapping"},
		{"fastwam", "video_dit_config", `{"hidden_dim": 24}`,
			"video_dit_config.video_attention_mask_mode: is not given, which is bidirectional to lerobot"},
		{"fastwam", "proprio_dim", "null", "proprio_dim: null, and a model that is told no state"},
		{"fastwam", "num_inference_steps", `"x"`, "acting_steps: \"x\" is text"},
		{"lingbot_va", "frame_chunk_size", "1", "frame_chunk_size: 1 is not what this model can have"},
		{"lingbot_va", "used_action_channel_ids", "[0, 2]", "used_action_channel_ids: [0,2] is not what"},
		{"lingbot_va", "used_action_channel_ids", "[0, 1, 2, 3, 4, 5]", "used_action_channel_ids: [0,1,2,3,4,5] is"},
		{"lingbot_va", "action_dim", `"x"`, `action_dim: "x" is not what this model can have`},
		{"lingbot_va", "action_per_frame", "0", "action_per_frame: 0 is not what this model can have"},
		{"lingbot_va", "out_channels", "7", "out_channels: 7 is not what this model can have"},
		{"lingbot_va", "obs_cam_keys", "3", "obs_cam_keys: 3 is not what this model can have"},
		{"lingbot_va", "camera_layout", `"robotwin_tshape"`, "camera_layout"},
		{"dreamzero", "num_frames", "21", "video_frames: 21 are 5 frames of latents behind the first"},
		{"dreamzero", "chunk_size", "7", "chunk_size: 7 actions are no whole number for each of 3 blocks"},
		{"dreamzero", "video_given", "3", "video_given: 3, and beside the 6 latents of a frame"},
		{"dreamzero", "view_form", `"droid"`, "view_form: droid, and there are 1 views"},
		{"dreamzero", "image_dim", "0", "image_dim: is not given"},
		{"cosmos3", "latent_patch_size", `"x"`, `latent_patch_size: "x" is no number of rows and columns`},
		{"cosmos3", "latent_patch_size", "0", "latent_patch_size: 0 is no number of rows and columns"},
		{"cosmos3", "sound_gen", "true", "sound_gen"},
		{"cosmos3", "action_gen", "false", "action_gen"},
		{"cosmos3", "timestep_scale", "1", "timestep_scale"},
		{"cosmos3", "qk_norm_for_text", "false", "qk_norm_for_text"},
		{"cosmos3", "rope_scaling", "3", "rope_scaling: 3, want a mapping"},
		{"cosmos3", "rope_scaling", `{"mrope_section": [2, 1, 1], "rope_type": "yarn"}`,
			`rope_scaling.rope_type: "yarn", only "default"`},
		{"cosmos3", "rope_axes_dim", "[2, 2, 1]", "rope_axes: [2 2 1], want three numbers"},
		{"cosmos3", "chunk_size", `"x"`, `chunk_size: "x" is text`},
		{"cosmos3", "video_frames", "8", "video_frames: 8, and behind the first the autoencoder takes 4"},
		{"cosmos3", "state_size", "4", "state_size: 4, and a state is read as actions are"},
		{"lingbot_va", "chunk_size", "7", "chunk_size: 7 actions are no whole number for each of 4 frames"},
	} {
		keys := map[string]json.RawMessage{}
		b, err := os.ReadFile(filepath.Join("../robots/testdata", c.family, "config.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &keys))
		keys[c.key] = json.RawMessage(c.value)
		dir := t.TempDir()
		b, err = json.Marshal(keys)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644))
		_, err = configs.ReadModel(dir)
		require.ErrorContains(t, err, c.want)
		if c.family == "lingbot_va" { // and no other key is blamed
			for line := range strings.Lines(err.Error()) {
				require.Regexp(t, `json:1: (model\.overrides\.)?`+c.key+": ", line)
			}
		}
	}
}
