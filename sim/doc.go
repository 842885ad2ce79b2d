// Package sim runs the behaviours of actors/core on one event loop under a virtual clock.
//
// # What it is
//
// The same programs, messages and protocols as training, with durations in place of kernels. A run ([Sim])
// is a function of its [Layout], [Prices] and seed: no goroutine, wall clock or map order takes part, and
// the hash over every delivered event shows it. The package knows neither files nor machines:
// sim/rehearsal translates a layout and a machine for it.
//
// # How a run goes
//
// sim.go delivers events in the order of time and number. A rank's job takes the time of its segment on one of the
// rank's engines (device.go), which also accounts for its memory. A message takes the time of its link (net.go);
// a collective is played as one exchange of its group, by the algorithm that prices name. Faults (fault.go) crash
// ranks, cut, slow or lose what travels, and stall saves. [Draw] makes faults of a seed.
//
// # What always holds
//
// [Monitor] watches a run for what the protocols promise: programs in order, once a step; credits; one
// commit for all; no payload left over; states of ranks, in symbols, equal to those of a run without
// faults. A breach ends the run with the event at which it was seen, and the seed repeats it.
//
// # Where to begin
//
// sim.go and queue.go are the loop; device.go is what actors/host is in real runs. Tests draw thousands of
// plans and faults; mutants_list_test.go lists planted faults of actors/core that they must find.
package sim
