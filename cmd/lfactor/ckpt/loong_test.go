package ckpt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// loongArguments are those of LoongForge's tools/convert_checkpoint, in the order of its parser.
const loongArguments = `load_platform save_platform load_ckpt_path save_ckpt_path megatron_path config_file convert_file
adapter_convert_file vision_patch_convert_file safetensors no_load_optim no_save_optim convert_to_fp8 quant_method
fp8_force_no_requant force_pow_2_scales amax_epsilon fp8_quant_transfer_type pretrain_as_fp8 hf-dequantize-int4
hf-dequantize-mxfp4 hf-dequantize-dtype hf-quant-config-file hf-official-config-file hf-pack-quantized-from-config
hf-pack-quantized-target-regex distributed_convert mtp_num_layers load_lora_ckpt_path lora_alpha lora_dim
encoder_tensor_model_parallel_size enable-full-hetero-dp hf_checkpoint_device torch_dtype vocab_size vpp-scheduler
num-virtual-stages-per-pipeline-rank decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers
vit_in_first_virtual_stage_only tensor_model_parallel_size pipeline_model_parallel_size data_parallel_size
expert_parallel_size expert_tensor_parallel_size pad_vocab_size_to add_embedding_padding make_vocab_size_divisible_by
custom_pipeline_layers pipeline_model_parallel_layout num_layers_per_virtual_pipeline_stage transformer_impl num_experts
checkpoint-format max_workers no-te moe-grouped-gemm resume-convert cache-path layer-for-test num-experts-for-test
sub-num-layers-for-save save-sub-checkpoint-by-pp sub_file_tag`

// TestLoongArguments: every argument of LoongForge's converter is taken over, changes nothing, or is
// refused with a reason; the documentation counts them.
func TestLoongArguments(t *testing.T) {
	taken, noted, refused := 0, 0, 0
	var names []string
	for _, arg := range strings.Fields(loongArguments) {
		name := strings.ReplaceAll(arg, "_", "-")
		names = append(names, name)
		r, ok := loongRules[name]
		require.True(t, ok, arg)
		switch {
		case r.late || r.flag != "":
			taken++
		case r.fine != nil:
			noted++
			require.NotEmpty(t, r.reason, arg)
		default:
			refused++
			require.NotEmpty(t, r.reason, arg)
		}
	}
	slices.Sort(names)
	require.Len(t, loongRules, len(slices.Compact(names)))
	require.Equal(t, []int{20, 23, 22}, []int{taken, noted, refused})
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "checkpoints.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "Of its 65 arguments 20 are taken over, 23 change nothing")
}

// TestLoongLines: lines of arguments become ones of ckpt convert, or are refused.
func TestLoongLines(t *testing.T) {
	both := "--load_ckpt_path a --save_ckpt_path b "
	to, from := both+"--load_platform=huggingface --save_platform mcore ",
		both+"--load-platform mcore --save-platform huggingface "
	for line, want := range map[string]string{
		to + "--tensor_model_parallel_size 4 --pipeline_model_parallel_size=2 --expert-parallel-size 2 " +
			"--megatron_path x --max_workers 8": "" +
			"a b --to megatron-ranks --tp 4 --pp 2 --ep 2",
		to + "--checkpoint-format torch_dist --no_save_optim --make_vocab_size_divisible_by 64 " +
			"--torch_dtype bfloat16": "" +
			"a b --to megatron --no-optimizer --vocab-divisible 64 --dtype bf16",
		to + "--tensor-model-parallel-size 2 --pad_vocab_size_to 1000": "a b --to megatron-ranks " +
			"--vocab-divisible 500 --tp 2",
		from + "--safetensors --tensor_model_parallel_size 4 --hf-official-config-file h/config.json " +
			"--no_load_optim": "" +
			"a b --like h --to hf",
		from + "--like h --safetensors --convert_to_fp8 --quant_method pt --amax_epsilon 0.0": "a b " +
			"--like h --to hf --quantize fp8",
	} {
		got, _, err := loongArgs(strings.Fields(line))
		require.NoError(t, err, line)
		require.Equal(t, want, strings.Join(got, " "), line)
	}
	for line, want := range map[string]string{
		to + "--custom_pipeline_layers 3,5":                         "as many layers each",
		to + "--force_pow_2_scales":                                 "powers of two",
		to + "--quant_method te":                                    "as pt makes them",
		to + "--expert_tensor_parallel_size 2":                      "cut by as many ranks",
		to + "--mtp_num_layers 1":                                   "further tokens",
		to + "--surprise 1":                                         "no argument of LoongForge's",
		to + "--max_workers":                                        "wants a value",
		to + "--checkpoint-format zarr":                             "torch and torch_dist",
		both + "--load_platform x --save_platform mcore":            "want huggingface or mcore",
		"--load_platform mcore --save_platform huggingface":         "are wanted",
		to + "--pad_vocab_size_to 7 --tensor-model-parallel-size 2": "a multiple of the ranks",
	} {
		_, _, err := loongArgs(strings.Fields(line))
		require.ErrorContains(t, err, want, line)
	}
}
