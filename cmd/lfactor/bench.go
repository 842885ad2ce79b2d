package main

import "github.com/spf13/cobra"

// benchVerb is lfactor bench: measurements of lfactor on this machine.
func benchVerb() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure lfactor on this machine"}
	c.AddCommand(stepBenchCommand(), kernelBench(), peakBench(), simBench(), planBench())
	return c
}
