package cli

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/cost"
)

// SoftwareFlag names the program that trains.
var SoftwareFlag = Flag{
	Name:  "software",
	Value: "NAME[@VERSION]|FILE,...",
	Doc: "program that trains: one or more descriptions, and settings of them as key=value, of which later ones win; lfactor " +
		"where neither it nor the cluster file (software) says another",
	Values: configs.Softwares,
}

// OnMachine is the machine that --cluster and --software name, its name for rehearsal.Machine, and settings behind those
// that the software sets where a run file does not. What the cluster file says in place of the software goes to stderr.
func OnMachine(mine, settings []string) (m *cost.Machine, name string, with []string, err error) {
	name = cmp.Or(FlagValue(mine, "cluster"), "cpu")
	if s := FlagValue(mine, "software"); s != "" {
		name += rehearsal.Under + s
	}
	if m, err = rehearsal.Machine(name); err != nil {
		return nil, "", nil, err
	}
	Notes(m.Software.Notes)
	return m, name, slices.Concat(m.Software.Settings, settings), nil
}
