//go:build ignore

// Command tool is run by hand and may import anything.
package main

import _ "example.com/unknown"

func main() {}
