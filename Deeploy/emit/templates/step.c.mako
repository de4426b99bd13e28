## One step: tables, the L2<->L1 loop (inner), and the L3<->L2 loop around it.
<%def name="tables(s)">\
static const dp_axis ${s.name}_axis[] = {${", ".join("{%d, %d, %d, %d}" % a for a in s.axes)}};
static const dp_space ${s.name}_space = {${s.name}_axis, ${len(s.axes)}, {${", ".join(map(str, s.plan.order))}}};
% for o in s.operands:
/* ${o.comment} */
% if o.dims:
static const dp_dim ${o.table}_dim[] = {${", ".join("{%s}" % ", ".join(map(integer, d)) for d in o.dims)}};
% endif
% if o.terms:
static const dp_term ${o.table}_term[] = {${", ".join("{%d, %s}" % (a, integer(c)) for a, c in o.terms)}};
% endif
static const dp_operand ${o.table} = {${o.table + "_dim" if o.dims else "NULL"}, ${o.table + "_term" if o.terms else "NULL"}, ${len(o.dims)}, ${o.operand.tensor.dtype.size}, ${o.axes_mask}, {${", ".join(map(str, o.operand.memory_order)) or 0}}};
% if o.literal is not None:
static const uint8_t ${o.table}_imm[] = {${", ".join(map(str, o.literal))}};
% endif
% endfor
% for c in s.calls:
% if c.constants:
static const ${c.struct} ${c.table} = {${c.constants}};
% endif
% endfor
</%def>\
<%def name="load(o, slot, copy, box, hop)">\
<% source = "net.source[%d]" % o.index if hop == "l2" else "net.home[%d]" % o.index %>\
dp_region_of(&${slot}->region[${copy}], &${o.table}, &${box});
      dp_move_${hop}(&${slot}->dma[${copy}], &${o.table}, &${slot}->region[${copy}], ${slot}->buffer[${copy}], &${source}, DP_IN);\
</%def>\
<%def name="loop_begin(s, ops, hop, outer)">\
% for o in ops:
<% slot = o.slot if hop == "l2" else o.far_slot %>\
% if not o.loads:
    dp_region_of(&${slot}->region[${slot}->now], &${o.table}, &box);
% elif hop == "l2" and s.outer_boxes > 1:
    if (!net.begun || dp_moved(&${o.table}, &net.at, &box)) {
      ${load(o, slot, slot + "->now", "box", hop)}
    }
% else:
    {
      ${load(o, slot, slot + "->now", "box", hop)}
    }
% endif
% endfor
</%def>\
<%def name="prefetch(s, ops, hop)">\
% for o in ops:
<% slot = o.slot if hop == "l2" else o.far_slot; buffers = o.near if hop == "l2" else o.far %>\
% if o.loads and buffers.copies == 2 and o.moves(s.plan, hop):
    if (more && dp_moved(&${o.table}, &box, &next)) {
      const int other = ${slot}->now ^ 1;
% if o.stores:
      dp_dma_${hop}_wait(&${slot}->dma[other]);
% endif
      ${load(o, slot, "other", "next", hop)}
    }
% endif
% endfor
</%def>\
<%def name="settle(ops, hop)">\
% for o in ops:
<% slot = o.slot if hop == "l2" else o.far_slot %>\
    dp_dma_${hop}_wait(&${slot}->dma[${slot}->now]);${"" if o.loads else " /* its last store */"}
% endfor
</%def>\
<%def name="store(s, ops, hop)">\
% for o in ops:
% if o.stores:
<% slot = o.slot if hop == "l2" else o.far_slot; source = "net.source[%d]" % o.index if hop == "l2" else "net.home[%d]" % o.index %>\
    if (dp_last(&${s.name}_space, &box))
      dp_move_${hop}(&${slot}->dma[${slot}->now], &${o.table}, &${slot}->region[${slot}->now], ${slot}->buffer[${slot}->now], &${source}, DP_OUT);
% endif
% endfor
</%def>\
<%def name="advance(s, ops, hop)">\
% for o in ops:
<% slot = o.slot if hop == "l2" else o.far_slot; buffers = o.near if hop == "l2" else o.far %>\
% if o.moves(s.plan, hop):
    if (dp_moved(&${o.table}, &box, &next)) {
% if buffers.copies == 2:
      ${slot}->now ^= 1;
% elif o.loads:
% if o.stores:
      dp_dma_${hop}_wait(&${slot}->dma[0]);
% endif
      ${load(o, slot, "0", "next", hop)}
% endif
% if not o.loads:
      dp_region_of(&${slot}->region[${slot}->now], &${o.table}, &next);
% endif
    }
% endif
% endfor
</%def>\
<%def name="drain(ops, hop)">\
% for o in ops:
% if o.stores:
<% slot = o.slot if hop == "l2" else o.far_slot; buffers = o.near if hop == "l2" else o.far %>\
% for copy in range(buffers.copies):
  dp_dma_${hop}_wait(&${slot}->dma[${copy}]);
% endfor
% endif
% endfor
</%def>\
<%def name="call(s, c)">\
    net.args.cst = ${"&" + c.table if c.constants else "NULL"};
% for i, a in enumerate(c.axes):
    net.args.n[${i}] = box.n[${a}];
    net.args.lo[${i}] = box.lo[${a}];
% endfor
% for i, o in enumerate(c.operands):
% if o.literal is not None:
    dp_region_of(&region, &${o.table}, &box);
    memcpy(net.args.t[${i}].imm.bytes, ${o.table}_imm, sizeof ${o.table}_imm);
    dp_tile_of(&net.args.t[${i}], &${o.table}, &region, &net.args.t[${i}].imm);
% else:
    dp_tile_of(&net.args.t[${i}], &${o.table}, &${o.slot}->region[${o.slot}->now], ${o.slot}->buffer[${o.slot}->now]);
% endif
% endfor
    net.args.first = (uint8_t)dp_first(&${s.name}_space, &box);
    net.args.last = (uint8_t)dp_last(&${s.name}_space, &box);
    dp_fork(${s.plan.cores}u, ${c.symbol}, &net.args);
</%def>\
<%def name="inner(s)">\
static void ${s.name}_inner(const dp_box *outer) {
  dp_box box, next;
  int more;
% if any(o.literal is not None for c in s.calls for o in c.operands):
  dp_region region;
% endif
% for o in s.near:
  dp_slot *const ${o.slot} = &net.near_slot[${o.index}];
% endfor
  dp_box_first(&box, &${s.name}_space, outer, DP_INNER);
  {
    /* the first tile */
${loop_begin(s, s.near, "l2", "outer")}\
  }
  for (;;) {
    next = box;
    more = dp_box_next(&next, &${s.name}_space, outer, DP_INNER);
${prefetch(s, s.near, "l2")}\
${settle(s.near, "l2")}\
% for c in s.calls:
${call(s, c)}\
% endfor
${store(s, s.near, "l2")}\
    if (!more) break;
${advance(s, s.near, "l2")}\
    box = next;
  }
${drain(s.near, "l2")}\
% if s.outer_boxes > 1:
  net.at = box;
  net.begun = 1;
% endif
}
</%def>\
<%def name="step(s)">\
static void ${s.name}(void) {
% if s.far or s.outer_boxes > 1:
  dp_box box, next;
  int more;
% endif
% for o in s.near:
  dp_slot *const ${o.slot} = &net.near_slot[${o.index}];
% endfor
% for o in s.far:
  dp_slot *const ${o.far_slot} = &net.far_slot[${o.index}];
% endfor
% for o in s.near:
% for copy, offset in enumerate(o.near.offsets):
  ${o.slot}->buffer[${copy}] = dp_open_l1(net.l1, ${offset}u, ${o.near.bytes}u);
% endfor
  ${o.slot}->now = 0;
% endfor
% for o in s.far:
% for copy, offset in enumerate(o.far.offsets):
  ${o.far_slot}->buffer[${copy}] = dp_open_l2(net.l2, ${offset}u, ${o.far.bytes}u);
% endfor
  ${o.far_slot}->now = 0;
% endfor
% for name, block in s.blocks:
  net.args.${name} = dp_open_l1(net.l1, ${block.offset}u, ${block.bytes}u);
% endfor
% for o in s.near:
% if o.far is None:
  dp_source_storage(&net.source[${o.index}], &${o.table}, ${o.base});
% else:
  dp_source_storage(&net.home[${o.index}], &${o.table}, ${o.base});
% endif
% endfor
% if not s.far and s.outer_boxes == 1:
  ${s.name}_inner(NULL);
% else:
  net.begun = 0;
  dp_box_first(&box, &${s.name}_space, NULL, DP_OUTER);
  {
    /* the first tile */
${loop_begin(s, s.far, "l3", "NULL")}\
  }
  for (;;) {
    next = box;
    more = dp_box_next(&next, &${s.name}_space, NULL, DP_OUTER);
${prefetch(s, s.far, "l3")}\
${settle(s.far, "l3")}\
% for o in s.far:
    dp_source_tile(&net.source[${o.index}], &${o.table}, &${o.far_slot}->region[${o.far_slot}->now], (uintptr_t)${o.far_slot}->buffer[${o.far_slot}->now]);
% endfor
    ${s.name}_inner(&box);
${store(s, s.far, "l3")}\
    if (!more) break;
${advance(s, s.far, "l3")}\
    box = next;
  }
${drain(s.far, "l3")}\
% endif
% for name, block in s.blocks:
  dp_close_l1(net.args.${name}, ${block.bytes}u);
  net.args.${name} = NULL;
% endfor
% for o in s.far:
% for copy in range(o.far.copies):
  dp_close_l2(${o.far_slot}->buffer[${copy}], ${o.far.bytes}u);
% endfor
% endfor
% for o in s.near:
% for copy in range(o.near.copies):
  dp_close_l1(${o.slot}->buffer[${copy}], ${o.near.bytes}u);
% endfor
% endfor
}
</%def>\
