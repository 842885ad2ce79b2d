//go:build !amd64

package cpu

func amxRun(*amxArgs) { panic("cpu: AMX on another processor") }

func amxSpin(int) { panic("cpu: AMX on another processor") }
