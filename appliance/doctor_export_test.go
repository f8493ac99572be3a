package main

// The parts of the doctor that tests reach for.
var (
	RunDoctor  = runDoctor
	FindServer = findServer
	RunCall    = runCall
)
