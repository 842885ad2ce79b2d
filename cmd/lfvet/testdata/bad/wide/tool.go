//go:build ignore

// Command tool is run by hand and may import anything.
package main

import _ "example.com/unknown"

func main() {}

// Line  0 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  1 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  2 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  3 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  4 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  5 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  6 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  7 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  8 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line  9 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line 10 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line 11 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line 12 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
// Line 13 of this comment ends behind the column that is the limit for the lines of a module: there are too many of them.
