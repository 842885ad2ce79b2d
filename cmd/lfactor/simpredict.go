package main

import "github.com/spf13/cobra"

func predictCommand() *cobra.Command { return &cobra.Command{Use: "predict"} }
