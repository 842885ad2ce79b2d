package sim

import (
	"strings"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
)

// simFlags are those of every simulation of a run file; all other words are settings.
var simFlags = cli.Flags{
	{Name: "cluster", Value: "NAME|FILE", Section: "What is simulated",
		Doc:    "machine: one that comes with lfactor (" + strings.Join(configs.Clusters(), ", ") + ") or a file; cpu where it is not said",
		Values: cli.Clusters},
	cli.SoftwareFlag,
	{Name: "schedule", Value: "NAME", Doc: "instead of plan.schedule; plan.virtual_stages follows where the schedule fixes it",
		Values: schedule.Trainable},
	{Name: "program", Value: "F.csv",
		Doc: "a schedule in PyTorch's pipelining notation instead of plan.schedule: one row a rank, one cell an action"},
	{Name: "plan", Value: "FILE", Doc: "the settings that lfactor plan --hosts --out has written"},
	{Name: "routing", Value: "DIR",
		Doc: "take as long as routing that was recorded there (train.routing: record) makes it, and say which expert and link bound a step"},
	{Name: "steps", Value: "N", Doc: "steps to run, 2 where it is not said", Values: nothing},
	{Name: "jitter", Value: "X", Doc: "jobs take up to this share longer, at random", Values: nothing},
	{Name: "collective", Value: "HOW",
		Doc:    "op: one event a member, where it is not said; send: every message of the ring, tree or hierarchy; direct: every member to every other, as training itself does",
		Values: func() []string { return []string{"op", "send", "direct"} }},
	{Name: "sends", Value: "HOW",
		Doc:    "beside: what goes to another stage travels beside a rank's work, where it is not said; wait: the rank waits until it is there and 66 us for its device, as Megatron-LM does without overlap_p2p_comm",
		Values: func() []string { return []string{"beside", "wait"} }},
	{Name: "fold", Doc: "run ranks that do the same once: the same figures, many times as fast; the hash is of what ran"},
	{Name: "seed", Value: "N", Section: "Faults", Doc: "of the order of events and of jitter", Values: nothing},
	{Name: "seeds", Value: "N", Doc: "run N seeds with faults, each twice, and compare the hashes of all events", Values: nothing},
	{Name: "faults", Value: "KIND,...", Doc: "what may go wrong: " + strings.Join(sim.FaultNames(), ", "), Values: sim.FaultNames},
	{Name: "shrink", Doc: "with sim replay: look for the smallest run that fails in the same way"},
	{Name: "explain", Section: "What comes out", Doc: "what the last step is made of: kernels and what bounds them, waiting, exchanges"},
	{Name: "trace", Value: "FILE", Doc: "the timeline of the last step for Perfetto and lfactor ui"},
	{Name: "svg", Value: "FILE", Doc: "the same as a drawing"},
	{Name: "html", Value: "FILE", Doc: "the same with the table as a report"},
}

// nothing completes numbers.
func nothing() []string { return nil }
