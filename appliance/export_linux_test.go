package main

// LetGo is what a box does once it serves.
var LetGo = letGo
