"""Planning: tiles, homes, buffers and arenas of a program, and the checker that proves a plan."""

from Deeploy.plan.checker import check
from Deeploy.plan.planner import PlanOptions, plan, plan_programs
from Deeploy.plan.result import Arena, Block, LevelUse, Placement, Plan, StepCost, StepPlan, TileBuffers

__all__ = [
    "Arena",
    "Block",
    "LevelUse",
    "Placement",
    "Plan",
    "PlanOptions",
    "StepCost",
    "StepPlan",
    "TileBuffers",
    "check",
    "plan",
    "plan_programs",
]
