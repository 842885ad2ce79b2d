package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// TestOffload: activations that lie in host memory between forward and backward change no bit, leave less on
// the device, and their copies are what the simulator is told.
func TestOffload(t *testing.T) {
	m := tiny(false)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	want, _ := v.train(t, m, 5, refBackend)
	var losses []float64
	l, o := v.run(t, m, 5, refBackend, &losses)
	plain := l.Memory(0).Activations
	j := *l.Design
	j.Offload, j.Mesh = 1, topology.Grid(2, 1, 1)
	l, err := layout.New(&j)
	require.NoError(t, err)
	require.NoError(t, Run(l, o))
	require.Equal(t, want, losses)
	require.Less(t, l.Memory(0).Activations, plain)
	var away, back int64
	tr := l.Main(0)
	for _, ph := range []grad.Phase{grad.F, grad.B} {
		for _, s := range tr.Segments(ph) {
			a, b := tr.Copies(&s)
			away, back = away+a, back+b
		}
	}
	require.Positive(t, away)
	require.Equal(t, away, back)
}

// someTensors go to the host or are computed again, in some of the blocks or in all.
var someTensors = []layout.Chosen{
	{TensorName: configs.TensorName{Name: "mlp.gate_proj", To: -1}, What: grad.Away},
	{TensorName: configs.TensorName{Name: "attention", From: 2, To: 3}, What: grad.Away},
	{TensorName: configs.TensorName{Name: "input_layernorm", To: -1}, What: grad.Again},
	{TensorName: configs.TensorName{Name: "swiglu", From: 1, To: 1}, What: grad.Again},
	{TensorName: configs.TensorName{Name: "swiglu", To: -1}, What: grad.Away}}

// TestChosenTensors: tensors that are moved or computed again by name change no bit, and the peak falls by
// what the plan says, within a twentieth.
func TestChosenTensors(t *testing.T) {
	m := tiny(false)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	want, _ := v.train(t, m, 5, refBackend)
	var losses []float64
	l, o := v.run(t, m, 5, refBackend, &losses)
	j := *l.Design
	j.Chosen, j.Mesh = []layout.Chosen{
		{TensorName: configs.TensorName{Name: "mlp.gate_proj", To: -1}, What: grad.Away},
		{TensorName: configs.TensorName{Name: "mlp.up_proj", From: 1, To: 1}, What: grad.Again},
		{TensorName: configs.TensorName{Name: "swiglu", To: -1}, What: grad.Again}}, topology.Grid(2, 1, 1)
	l, err := layout.New(&j)
	require.NoError(t, err)
	require.NoError(t, Run(l, o))
	require.Equal(t, want, losses)

	job := func(chosen []layout.Chosen) *layout.Design {
		return &layout.Design{Model: memoryModel(), Rows: 64, Optim: optim.Config{Name: "adamw", Beta1: 0.9,
			Beta2: 0.95, Eps: 1e-8}, Mesh: topology.Grid(1, 1, 1), Schedule: "gpipe", Micro: 8,
			Chosen: chosen}
	}
	before, plannedBefore := peaksOf(t, job(nil))
	after, plannedAfter := peaksOf(t, job(someTensors))
	fell, said := before[0]-after[0], plannedBefore[0]-plannedAfter[0]
	t.Logf("peak %d, %d with choices: fell by %d, planned %d", before[0], after[0], fell, said)
	require.Greater(t, said, before[0]/10)
	require.Less(t, math.Abs(float64(fell-said)), 0.05*float64(said))
}

// TestChosenNames: a name that no block has, and what cannot be done with a tensor, are refused with the
// names that there are.
func TestChosenNames(t *testing.T) {
	plan := func(name string, what grad.Choice) error {
		_, err := layout.New(&layout.Design{Model: memoryModel(), Rows: 64,
			Optim: optim.Config{Name: "adamw"},
			Mesh:  topology.Grid(2, 1, 1), Schedule: "1f1b", Micro: 2, Chosen: []layout.Chosen{
				{TensorName: configs.TensorName{Name: name, To: -1}, What: what, Key: "plan.some_tensors"}}})
		return err
	}
	require.NoError(t, plan("attention", grad.Away))
	require.ErrorContains(t, plan("atention", grad.Away),
		"plan.some_tensors: atention: no block has a tensor of "+
			"that name; blocks have attention, ")
	require.ErrorContains(t, plan("lm_head", grad.Again),
		"plan.some_tensors: lm_head: its tensors cannot be dealt "+
			"with so")
}
