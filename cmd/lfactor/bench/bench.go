// Package bench is the verb of that name: it parses, calls and prints.
package bench

import "github.com/spf13/cobra"

// Command is lfactor bench: measurements of lfactor on this machine.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure lfactor on this machine"}
	c.AddCommand(stepBenchCommand(), encodeBenchCommand(), kernelBench(), peakBench(), simBench(), planBench(), suiteBench(), growthBench())
	return c
}
