package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lfactor/lfactor/actors/cluster/depot"
	"github.com/lfactor/lfactor/actors/run/mirror"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

var _ mirror.Depots = (*Fleet)(nil)

// Host implements mirror.Depots.
func (f *Fleet) Host() string { return f.self.Node }

// Hosts implements mirror.Depots.
func (f *Fleet) Hosts() (ranks, spare []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(f.peers)) {
		if h := f.peers[n].Node; !slices.Contains(ranks, h) {
			ranks = append(ranks, h)
		}
	}
	for _, h := range slices.Sorted(maps.Keys(f.hosts)) {
		if h != f.self.Node && !slices.Contains(ranks, h) {
			spare = append(spare, h)
		}
	}
	return ranks, spare
}

// Depot implements mirror.Depots.
func (f *Fleet) Depot(host string) (checkpoint.Depot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addr := f.hosts[host]
	if addr == "" {
		return nil, fmt.Errorf("host %s is not connected with the head of the cluster", host)
	}
	key := host + " " + addr // an agent that was started again has another address
	if f.depots[key] == nil {
		job, _ := strconv.ParseInt(f.self.Job, 10, 64) // the head counts its jobs
		f.depots[key] = depot.NewClient(host, addr, f.id, job<<32|int64(f.self.Gen))
	}
	return f.depots[key], nil
}
