package all

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRobotLeaves alters each leaf of config.json of lerobot's policies, which has all keys that lerobot 0.4.4 writes
// (bench/golden/lerobot_configs.py): the model moves, or the file is refused, or a note names the leaf, or the leaf is
// listed with the reason why it does nothing here.
func TestRobotLeaves(t *testing.T) {
	var all map[string]map[string]any
	text, err := os.ReadFile("testdata/lerobot.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	dir, counts, silent, k := t.TempDir(), map[string]map[string]int{}, map[string]string{}, 0
	for _, policy := range slices.Sorted(maps.Keys(all)) {
		c, n := all[policy], map[string]int{}
		counts[policy] = n
		base, _, err := leafModel(t, dir, c)
		if slices.Contains([]string{"pi0_fast", "xvla"}, policy) { // xvla's default names no Florence
			require.Error(t, err, policy)
			n["refused whole"]++
			continue
		}
		require.NoError(t, err, policy)
		eachLeaf(c, "", func(path string) {
			if k++; !*long && k%5 != 0 {
				return
			}
			leaf := path[strings.LastIndex(path, ".")+1:]
			m, notes, err := leafModel(t, dir, c)
			switch {
			case err != nil:
				n["refused"]++
			case !reflect.DeepEqual(m, base):
				n["moves"]++
			case slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, leaf) }):
				n["noted"]++
			default:
				n["nothing"]++
				if !slices.ContainsFunc(slices.Sorted(maps.Keys(robotSilent)), func(k string) bool {
					return slices.Contains(strings.Fields(k), path)
				}) {
					silent[path] += " " + policy
				}
			}
		})
	}
	t.Logf("%d leaves, with -long each, else one of five: %v", k, counts)
	for _, k := range slices.Sorted(maps.Keys(silent)) {
		t.Errorf("%s of%s does nothing, and nothing says so", k, silent[k])
	}
}

// robotSilent are leaves that do nothing here, with the reason.
var robotSilent = map[string]string{
	"device dtype use_amp use_bf16 compile_mode compile_model gradient_checkpointing use_cache rtc_config video_backend": "how " +
		"arithmetic is carried out, which a run file and a server say",
	"license private push_to_hub repo_id tags pretrained_path output_dir report_to resume save_steps dataset_paths base_model_path " +
		"tokenizer_assets_repo load_vlm_weights pretrained_backbone_weights": "where files come from and go to",
	"optimizer_lr optimizer_lr_backbone optimizer_vqvae_lr optimizer_vqvae_weight_decay optimizer_betas optimizer_eps optimizer_grad_clip_norm optimizer_weight_decay " +
		"scheduler_name scheduler_decay_lr scheduler_decay_steps scheduler_warmup_steps batch_size dataloader_num_workers max_steps " +
		"warmup_ratio balance_dataset_weights balance_trajectory_weights drop_n_last_frames": "lerobot's recipe, in place of which a run file has its own",
	"freeze_vision_encoder train_expert_only train_state_proj tune_diffusion_model tune_llm tune_projector tune_visual use_peft " +
		"lora_alpha lora_dropout lora_full_model lora_rank": "what lerobot trains; here freeze and lora say it",
	"input_features.observation.state.type input_features.observation.state.shape output_features.action.type output_features.action.shape " +
		"normalization_mapping.ACTION normalization_mapping.STATE normalization_mapping.VISUAL embodiment_tag": "the pipelines say it, " +
		"which lerobot reads too (TestPipelineLeaves of stages/policies)",
	"n_action_steps temporal_ensemble_coeff":      "how the one who moves the robot uses a chunk",
	"num_inference_steps num_steps":               "of the flow's steps, which who asks a policy says",
	"empty_cameras prefix_length pad_language_to": "padding that nothing sees",
	"chunk_size image_size":                       "GR00T gives 16 actions at most, and Eagle's own processor sizes pictures",
	"crop_ratio":                                  "without resize_shape, which is refused, lerobot does not read it",
	"max_state_dim":                               "the pipeline's step of Pi0.5 says it",
}
