package main

import "os"

// hangupSignals is empty here: the file is watched.
func hangupSignals() []os.Signal { return nil }
