package main

func amxSource() []byte { return nil }
