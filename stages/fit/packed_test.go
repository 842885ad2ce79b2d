package fit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestBaseOfCutExperts: lora.base has no effect on experts that plan.etp cuts, which is said.
func TestBaseOfCutExperts(t *testing.T) {
	for etp, says := range map[string]bool{"1": false, "2": true} {
		c, err := configs.Load(configs.Request{Args: []string{"model.name=qwen/3-30b-a3b",
			"model.init=random",
			"data.paths=[d]", "data.tokenizer=t", "data.seq_len=64", "train.global_batch=8",
			"train.micro_batch=1", "train.steps=1",
			"lora.rank=4", "lora.targets=['*.self_attn.*']", "lora.base=int4", "plan.dp=2",
			"plan.etp=" + etp},
			Getenv: func(string) string { return "" }})
		require.NoError(t, err)
		require.Equal(t, says, strings.Contains(strings.Join(c.Notices, "\n"),
			"lora.base = int4 has no effect on experts: with plan.etp = 2"), c.Notices)
	}
}
