package main

import "github.com/spf13/cobra"

var _ = add(func() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure lfactor on this machine"}
	c.AddCommand(stepBenchCommand(), kernelBench(), peakBench(), simBench(), planBench())
	return c
})
