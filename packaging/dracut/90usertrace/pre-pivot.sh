#!/bin/sh
# Before what saves memory in this hook (90, where it does), and before what does so in the real system.
# It is sourced by the first process: what does the work is not.
usertrace-crash || :
