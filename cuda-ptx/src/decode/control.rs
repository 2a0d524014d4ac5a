//! Branches, calls, returns and barriers of blocks.

use super::Problem;
use super::function::{Decoder, Symbol};
use super::link::{Global, place};
use super::words::{Words, type_of};
use crate::program::{Bank, Barrier, Element, Op, Pass, Passed, Slot};
use crate::syntax::{Instruction, Operand, Type};

/// The offset and size of each parameter or result in the frame of the callee.
type Places = Vec<(u32, u32)>;

/// Returns whether a modifier of an instruction without effect changes nothing: the engine executes all accesses in
/// order.
fn has_no_effect(word: &str) -> bool {
    let families = ["proxy", "async", "tensormap", "sync_restrict", "op_restrict", "shared"];
    families.iter().any(|family| word.starts_with(family))
        || matches!(
            word,
            "sc" | "acq_rel"
                | "acquire"
                | "release"
                | "cta"
                | "cluster"
                | "gpu"
                | "gl"
                | "sys"
                | "alias"
                | "global"
                | "mbarrier_init"
                | "wait"
                | "launch_dependents"
                | "mask"
                | "inc"
                | "dec"
                | "sync"
                | "aligned"
        )
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an instruction that chooses the next one, or waits. Returns whether it is one.
    pub(super) fn control(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        match its.opcode().as_bytes() {
            b"bra" => {
                words.take("uni");
                let Operand::Name(label) = self.operand(operands, 0)? else {
                    return Problem::invalid("the target is not a label");
                };
                let at = self.emit(Op::Branch(u32::MAX));
                self.branch_to(at, 0, label);
            }
            b"brx" => {
                words.take("idx");
                words.take("uni");
                let index = self.source(self.operand(operands, 0)?, Type::U32)?;
                let labels = match self.operand(operands, 1)? {
                    Operand::Name(table) => self.table(table),
                    _ => None,
                };
                let labels =
                    labels.ok_or_else(|| Problem::Invalid("the table is not defined".into()))?;
                let targets = vec![u32::MAX; labels.len()].into_boxed_slice();
                let at = self.emit(Op::BranchTable { index, targets });
                for (entry, label) in labels.into_iter().enumerate() {
                    self.branch_to(at, entry, label);
                }
            }
            b"call" => {
                words.take("uni");
                self.call(operands)?;
            }
            b"ret" => {
                words.take("uni");
                self.end()?;
            }
            b"exit" => {
                self.emit(Op::Exit);
            }
            b"trap" | b"brkpt" => {
                self.emit(Op::Trap);
            }
            b"nanosleep" => {
                words.drop_all(|_| true);
                self.emit(Op::Sleep);
            }
            b"pmevent" | b"membar" | b"fence" | b"griddepcontrol" | b"setmaxnreg"
            | b"createpolicy" => {
                if its.opcode() == "createpolicy" {
                    return Problem::unsupported("a policy of caches");
                }
                let fence = match its.opcode() {
                    "membar" | "fence" => words.fence(),
                    _ => None,
                };
                words.drop_all(|word| has_no_effect(word) || type_of(word) == Some(Type::U32));
                self.emit(fence.map_or(Op::Nop, Op::Fence));
            }
            b"bar" | b"barrier" => self.barrier(its.opcode(), operands, words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn barrier(
        &mut self,
        opcode: &str,
        operands: &[Operand<'a>],
        words: &mut Words<'a>,
    ) -> Result<(), Problem> {
        if words.take("cluster") {
            let releases = !words.take("relaxed");
            words.drop_all(|word| matches!(word, "aligned" | "release" | "acquire" | "sem"));
            let is_wait = words.one_of(&["arrive", "wait"]) == Some("wait");
            self.emit(if is_wait { Op::ClusterWait } else { Op::ClusterArrive { releases } });
            return Ok(());
        }
        if words.take("warp") {
            words.take("sync");
            let mask = self.source(self.operand(operands, 0)?, Type::B32)?;
            self.emit(Op::Together { mask, operation: crate::program::Together::Sync });
            return Ok(());
        }
        let is_aligned = opcode == "bar" || words.take("aligned");
        words.drop_all(|word| matches!(word, "aligned" | "cta"));
        let kind = words.one_of(&["sync", "arrive", "red"]);
        if kind != Some("red") {
            words.try_ty();
            let id = self.source(self.operand(operands, 0)?, Type::U32)?;
            let count = match operands.get(1) {
                Some(operand) => Some(self.source(operand, Type::U32)?),
                None => None,
            };
            let barrier = if kind == Some("arrive") { Barrier::Arrive } else { Barrier::Sync };
            self.emit(Op::Barrier { id, count, barrier, is_aligned });
            return Ok(());
        }
        let function = words.one_of(&["popc", "and", "or"]);
        let ty = words.ty()?;
        let id = self.source(self.operand(operands, 1)?, Type::U32)?;
        let count = match operands.len() {
            4 => Some(self.source(self.operand(operands, 2)?, Type::U32)?),
            _ => None,
        };
        let a = self.predicate(self.operand(operands, operands.len().saturating_sub(1))?)?;
        let d = self.target(self.operand(operands, 0)?, ty)?;
        let barrier = match function {
            Some("popc") => Barrier::Popc { d, a },
            Some("and") => Barrier::And { d, a },
            _ => Barrier::Or { d, a },
        };
        self.emit(Op::Barrier { id, count, barrier, is_aligned });
        Ok(())
    }

    fn call(&mut self, operands: &'a [Operand<'a>]) -> Result<(), Problem> {
        let mut rest = operands;
        let mut results: &[Operand<'a>] = &[];
        if let [Operand::List(list), more @ ..] = rest {
            results = list;
            rest = more;
        }
        let [Operand::Name(name), rest @ ..] = rest else {
            return Problem::invalid("the function is missing");
        };
        let (arguments, rest): (&[Operand<'a>], _) = match rest {
            [Operand::List(list), rest @ ..] => (list, rest),
            rest => (&[], rest),
        };
        let target = match self.symbol(name) {
            Some(Symbol::Register { slot, .. }) => Err(slot),
            _ => match self.global(name) {
                Some(Global::Function(index)) => Ok((index, None)),
                Some(Global::Intrinsic(intrinsic, index)) => Ok((index, Some(intrinsic))),
                Some(Global::Undefined) => return Problem::unsupported("an undefined function"),
                _ => return Problem::invalid(format!("the function `{name}` is not defined")),
            },
        };
        let (of_results, of_params, is_foreign) = match &target {
            Ok((index, _)) => {
                let (module, its) = self.builder.symbols.functions[*index];
                let (results, end) = place(&its.results, 0);
                let (params, _) = place(&its.params, end);
                (results, params, module != self.module)
            }
            Err(_) => {
                let (results, params) = self.prototype(rest)?;
                (results, params, false)
            }
        };
        // Another module may declare a result that the function does not have. Its value is undefined.
        let has_results = is_foreign || results.len() <= of_results.len();
        if arguments.len() != of_params.len() || !has_results {
            return Problem::invalid(format!(
                "`{name}` takes {} arguments, and the call has {}",
                of_params.len(),
                arguments.len()
            ));
        }
        let mut passed = Vec::new();
        for (operand, (callee, size)) in arguments.iter().zip(&of_params) {
            passed.push(self.pass(operand, *callee, *size)?);
        }
        let mut returned = Vec::new();
        for (operand, (callee, size)) in results.iter().zip(&of_results) {
            if !matches!(operand, Operand::Discard) {
                returned.push(self.pass(operand, *callee, *size)?);
            }
        }
        let arguments = passed.into_boxed_slice();
        match target {
            Ok((index, None)) => {
                let function = self.builder.function(index);
                self.emit(Op::Call { function, arguments });
            }
            Ok((_, Some(intrinsic))) => {
                let params = of_params.iter().map(|(offset, _)| *offset).collect();
                self.emit(Op::Intrinsic { intrinsic, arguments, params });
            }
            Err(target) => {
                self.builder.indirect_call();
                let target: Slot = target;
                self.emit(Op::CallIndirect { target, arguments });
            }
        }
        if !returned.is_empty() {
            self.emit(Op::Results(returned.into_boxed_slice()));
        }
        Ok(())
    }

    /// Returns the results and parameters of the prototype of an indirect call.
    fn prototype(&self, operands: &[Operand<'a>]) -> Result<(Places, Places), Problem> {
        if let [Operand::Name(name), ..] = operands {
            if let Some(Symbol::Prototype { results, params }) = self.symbol(name) {
                return Ok((results, params));
            }
        }
        Problem::invalid("an indirect call without a prototype")
    }

    fn pass(&mut self, operand: &Operand<'a>, callee: u32, size: u32) -> Result<Pass, Problem> {
        if let Operand::Name(name) = operand {
            match self.symbol(name) {
                Some(Symbol::Frame { offset, size: its }) => {
                    if its < size {
                        return Problem::invalid(format!("the parameter `{name}` is too small"));
                    }
                    return Ok(Pass { callee, size, caller: Passed::Frame(offset) });
                }
                Some(Symbol::Register { slot, ty: Type::Pred }) => {
                    return Ok(Pass { callee, size, caller: Passed::Predicate(slot) });
                }
                _ => {}
            }
        }
        let element: Element = self.passed(operand, size)?;
        Ok(Pass { callee, size, caller: Passed::Register(element) })
    }

    /// Returns a register for a result that nothing reads.
    pub(super) fn unused(&mut self, bank: Bank) -> Slot {
        self.builder.register(bank)
    }
}
