#pragma once

/// `status`, or 1 with a sentence on stderr where something that the program printed could not be written: a full disk
/// must not look like success. Every example calls it at its exit.
int checked_output(int status);
