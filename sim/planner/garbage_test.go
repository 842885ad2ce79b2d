package planner

import "runtime/debug"

// These tests hold few MiB at a time and make many: collected at each doubling, as usual, garbage takes a
// quarter of their time.
func init() { debug.SetGCPercent(400) }
