#pragma once
#include <meso/train/data.hpp>
#include <meso/train/evaluate.hpp>
#include <meso/train/non_finite.hpp>
#include <meso/train/tasks/bigram_backcopy.hpp>
#include <meso/train/trainer.hpp>
